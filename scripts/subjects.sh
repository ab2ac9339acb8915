#!/bin/sh
# Checks commit subjects, one per line on standard input: at most 72 characters, a capital letter first, no full
# stop, imperative. Exits with 1 if one breaks a rule. It only finds the usual slips in the mood: Added, Fixes,
# Updating.
set -eu

status=0
refuse() {
    echo "subjects: $1: $subject" >&2
    status=1
}
slips='(Add|Allow|Check|Explain|Extend|Fix|Refactor|Test)(s|es|ed|ing)'
slips="$slips|(Chang|Handl|Improv|Mov|Remov|Renam|Replac|Updat|Us|Writ)(es|ed|ing)|Drop(s|ped|ping)"
while IFS= read -r subject; do
    # UTF-8 characters are counted by their first bytes, in any locale.
    length=$(printf %s "$subject" | LC_ALL=C tr -d '\200-\277' | wc -c)
    [ "$length" -le 72 ] || refuse "longer than 72 characters"
    case $subject in
    WIP*) refuse "not ready" ;;
    [A-Z]*) ;;
    *) refuse "no capital letter first" ;;
    esac
    case $subject in *.) refuse "a full stop at the end" ;; esac
    if echo "$subject" | grep -qE "^($slips) "; then refuse "not in the imperative"; fi
done
exit $status
