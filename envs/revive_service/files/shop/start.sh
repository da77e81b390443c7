#!/bin/sh
# Stops a running gateway and starts it again in the background; prints the first thing it has to say.
cd "$(dirname "$0")"
touch gateway.log
if [ -f gateway.pid ]; then
    kill "$(cat gateway.pid)" 2>/dev/null
    while kill -0 "$(cat gateway.pid)" 2>/dev/null; do sleep 0.05; done
fi
lines=$(wc -l <gateway.log)
setsid python3 gateway.py gateway.json </dev/null >>gateway.log 2>&1 &
echo $! >gateway.pid
while [ "$(wc -l <gateway.log)" -eq "$lines" ]; do sleep 0.05; done
tail -n 1 gateway.log
