"""How far behind a mirror is: one answer for status, the live table, `/v1`, metrics. Pure.

Begin at `figures` (what is answered), then `lanes:lane_lag` (how a lane's answer is found from what
was seen of it), `history` (what was seen before), `retention` (when the source would delete what
waits) and `folding` (lanes to topics and flows). Who looks at clusters is `driver.lag_book`. May
import `model` and what stands below it.
"""
