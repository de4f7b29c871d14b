"""Everything that talks to a Kafka broker, and the values it returns.

`connection`, `cluster` and `log` are the asyncio side that slots copy with; `admin`, `groups`,
`acls` and `records` are librdkafka behind blocking calls, for the driver. Begin at `cluster`. May
import `config`, `wire` and below; knows nothing of flows, lanes or the ledger.
"""
