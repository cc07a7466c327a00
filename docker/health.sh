#!/bin/bash
# health.sh: succeeds when the server in this container answers /health with 200. The image has
# no HTTP client; bash opens the connection. The port is TOKEND_PORT's, not a --port flag's.
exec 3<>"/dev/tcp/127.0.0.1/${TOKEND_PORT:-8000}" || exit 1
printf 'GET /health HTTP/1.0\r\n\r\n' >&3
read -r -t 4 _ status _ <&3 && [ "$status" = 200 ]
