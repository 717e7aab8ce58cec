#!/bin/sh
# A provider program whose machines are background processes on this machine. Use it as a template.
# MACHINE is the command that a machine runs in its folder, next to identity.json. The state folder
# holds a folder for each machine, so a repeated launch creates no second machine, and a file for
# each image.
# shellcheck disable=SC2030,SC2031 # values of a worker are used only for that worker
set -eu
cd "${FLEETWRIGHT_STATE:?names the folder for our state}"
question=$(cat)
# One worker per line, without nested values. Most languages have a JSON parser for this.
workers=$(printf '%s' "$question" | sed -e 's/"providerData":{[^}]*},*//g' -e 's/"proof":{\([^}]*\)}/\1/g' | tr '{' '\n' | grep '"workerId"') || :
get() { printf '%s' "$worker" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
asked() { printf '%s' "$question" | sed -n "s/.*\"$1\":\"*\([^\",}]*\).*/\1/p"; }
# After a reboot another process may have this number. A real provider also stores the boot id and
# the start time, as `local` does.
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
  setup) printf '{"places":[{"region":"%s"}],"fills":{"region":"/region"},"images":{"formats":["tar","raw"]}}' "${REGION:-here}" ;;
  validate) echo '{}' ;;
  bids) echo '{"bids":[]}' ;;
  launch) case "$question" in *'"soldOut":true'*) echo '{"cause":"capacity","message":"this one is sold out"}'; exit 1 ;; esac
    printf '{"machines":[%s]}' "$(each launch)" ;;
  look) printf '{"sightings":[%s]}' "$(each look)" ;;
  owned) printf '{"machines":[%s]}' "$(owned)" ;;
  upload-image) mkdir -p images; image=image-$(asked token)
    [ -e "images/$image" ] || { cp -- "$(asked path)" "images/.$image" && mv "images/.$image" "images/$image"; }
    printf '{"state":"ready","imageId":"%s"}' "$image" ;;
  find-image) image=image-$(asked token); if [ -e "images/$image" ]; then printf '{"image":{"imageId":"%s"}}' "$image"; else echo '{}'; fi ;;
  delete-image) image=$(asked imageId); case "$image" in */*) ;; *) rm -f "images/$image" ;; esac; echo '{}' ;;
  owned-images) printf '{"images":[%s]}' "$(for image in images/image-*; do if [ -e "$image" ]; then
    printf '{"imageId":"%s","token":"%s"}\n' "${image#images/}" "${image#images/image-}"; fi; done | paste -sd, -)" ;;
  end) each end >/dev/null; echo '{}' ;;
  verify) echo '{"verified":false,"detail":"we have no proofs of our own"}' ;;
esac
