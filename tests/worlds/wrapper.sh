#!/usr/bin/env bash
# Runs a world the ways that wrapper scripts do: wrapper.sh WAY COMMAND [ARGUMENT...]
set -u
way=$1
shift
case $way in
child) # the shell stays in between, and the world is its child
    "$@"
    exit $?
    ;;
again) # the shell starts the world again whenever it ends
    while :; do
        "$@"
        sleep 0.05
    done
    ;;
prepare) # the shell does something else before it becomes the world
    sleep 0.3
    exec "$@"
    ;;
nohup) # the world has a session of its own and ignores SIGHUP; the shell waits for it
    nohup setsid "$@" &
    wait
    ;;
background) # the shell ends at once and the world lives on in its session
    setsid "$@" &
    ;;
*)
    echo "wrapper.sh: no such way: $way" >&2
    exit 64
    ;;
esac
