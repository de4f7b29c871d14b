"""Whether a flow is well, what is not and since when: verdict, alarms, canary.

Begin at `verdict`, which is pure, and `sight`, what it looks at; then `conditions` and `alarms`,
pure too, `watch`, the job that looks, and `canary_job`. May import `audit`, `procedure`, `inspect`
and what stands below them.
"""
