#!/bin/sh
# A provider program whose machines are background processes on this very machine: a start for your own.
# MACHINE is what a machine runs, in its folder, where identity.json says who the worker is. A state folder holds a folder for each machine, which also makes a launch idempotent.
# shellcheck disable=SC2030,SC2031 # what is set for a worker is used only for that worker
set -eu
cd "${FLEETWRIGHT_STATE:?names the folder for our state}"
question=$(cat)
# One worker a line, without what is nested in it. A program in a language that reads JSON has this for nothing.
workers=$(printf '%s' "$question" | sed -e 's/"providerData":{[^}]*},*//g' -e 's/"proof":{\([^}]*\)}/\1/g' | tr '{' '\n' | grep '"workerId"') || :
get() { printf '%s' "$worker" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
asked() { printf '%s' "$question" | sed -n "s/.*\"$1\":\"*\([^\",}]*\).*/\1/p"; }
# A number alone: after a reboot another process may have it. Keep the boot id and the start time beside it, as `local` does.
alive() { [ -s "$1/pid" ] && grep -qs '^State:.[^Z]' "/proc/$(cat "$1/pid")/status"; }
each() { printf '%s\n' "$workers" | while read -r worker; do id=$(get workerId) group=$(get workerGroup); "$1"; done | paste -sd, -; }
launch() { if mkdir "$id" 2>/dev/null; then
    echo "$group" >"$id/group"
    (umask 077; printf '{"rootUrl":"%s","providerId":"%s","workerPoolId":"%s","workerGroup":"%s","workerId":"%s","capacity":%s,"proof":{"token":"%s"},"workDir":"%s/work"}\n' \
      "$(asked deployment)" "$(asked providerId)" "$(asked workerPoolId)" "$group" "$id" "$(asked capacityEach)" "$(get token)" "$PWD/$id" >"$id/identity.json")
    # shellcheck disable=SC2086 # a command and its arguments
    (cd "$id" && exec setsid ${MACHINE:-fleetwright worker --identity identity.json} </dev/null >log 2>&1) & echo $! >"$id/pid"
  fi
  printf '{"workerGroup":"%s","workerId":"%s"}\n' "$group" "$id"; }
look() { if alive "$id"; then state=alive; elif [ -d "$id" ]; then state=gone; else state=not-found; fi
  printf '{"workerPoolId":"%s","workerGroup":"%s","workerId":"%s","state":"%s"}\n' "$(get workerPoolId)" "$group" "$id" "$state"; }
end() { if alive "$id"; then kill -- "-$(cat "$id/pid")" 2>/dev/null || kill "$(cat "$id/pid")"; fi; }
owned() { for id in *; do if alive "$id"; then printf '{"token":"%s","workerGroup":"%s","workerId":"%s"}\n' "${id%-*}" "$(cat "$id/group")" "$id"; fi; done | paste -sd, -; }
case "$1" in
  setup) printf '{"places":[{"region":"%s"}],"fills":{"region":"/region"}}' "${REGION:-here}" ;;
  validate) echo '{}' ;;
  bids) echo '{"bids":[]}' ;;
  launch) case "$question" in *'"soldOut":true'*) echo '{"cause":"capacity","message":"this one is sold out"}'; exit 1 ;; esac
    printf '{"machines":[%s]}' "$(each launch)" ;;
  look) printf '{"sightings":[%s]}' "$(each look)" ;;
  owned) printf '{"machines":[%s]}' "$(owned)" ;;
  end) each end >/dev/null; echo '{}' ;;
  verify) echo '{"verified":false,"detail":"we have no proofs of our own"}' ;;
esac
