"""The drill: a failover rehearsed on live clusters; no group or record of anybody's is touched.

`run` does it, `reading` and `sample` read and compare as a moved group would, `report` and `page`
tell the result, `schedule` repeats it beside a mirror, `background` keeps it out of everybody's
way. Begin at `run`. May import `audit` and below.
"""
