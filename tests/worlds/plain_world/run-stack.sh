#!/usr/bin/env bash
exec python3 -I world.py "$@"
