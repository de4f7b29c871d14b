"""The operator's page at `/`: HTML made on the driver, and one small script. Runs on the driver.

Begin at `routes`; `look` is what the page shows of the mirror, gathered once for all who look,
`slow` what has to be asked of clusters, `view` turns both into what `*.html` show. `page.js`
fetches the same HTML again and changes what has changed; what it does to the mirror are verbs of
`/v1`.
May import what `api` may, and of `api` all but `app` and `server`.
"""
