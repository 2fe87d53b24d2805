#!/bin/bash
# Fails if a command that writes generated files changes, adds or removes files of the folders. It compares with a copy
# made before, so edits need no commit and the tree needs no git. The new files stay.
# usage: deploy/fresh.sh 'command' folder...
set -euo pipefail
generate=$1
shift
before=$(mktemp -d)
trap 'rm -r "$before"' EXIT
cp -a --parents "$@" "$before"
bash -c "$generate"
changes=$(for folder; do diff -ruN "$before/$folder" "$folder" || [ $? = 1 ] || exit; done)
[ -z "$changes" ] || {
	echo "$changes"
	echo 'generated files were stale:'
	awk '/^diff / { print "  " $NF }' <<<"$changes"
	echo "They are up to date now, as '$generate' writes them: keep these changes with yours."
	exit 1
} >&2
