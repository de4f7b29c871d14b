"""The drill: a failover rehearsed on live clusters; no group or record of anybody's is touched.

`run` does it, `shadow_groups` stand in for the real ones, `reading` reads what a moved group would
get and has the audit compare it (`sample` says which records), `report` and `page` (with its
template `page.html`) tell the result, `schedule` repeats it beside a mirror, `background` at the
lowest priority. Begin at `run`. May import `audit` and below.
"""
