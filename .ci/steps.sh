# SPDX-License-Identifier: Apache-2.0
# Sourced by quickstart.sh and check.sh from the root of the repository: quiet steps that speak up when they fail.
# shellcheck shell=bash

steps_log=$(mktemp -d)
trap 'rm -rf "$steps_log"' EXIT

say() { printf '%s\n' "$*" >&2; }

# step NAME COMMAND...: runs quietly; on failure says which step it was, shows the end of what it printed, and fails.
step() {
    local name=$1 log status=0
    shift
    log=$steps_log/log
    "$@" >"$log" 2>&1 || status=$?
    if ((status != 0)); then
        say "failed: $name (status $status). The end of its output:"
        tail -n "${STEP_TAIL:-40}" "$log" | sed 's/^/    /' >&2
        return 1
    fi
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "not root, and there is no sudo: install these packages first: ${missing_packages[*]}"
        return 1
    fi
}

# install_packages [PATTERN]: what .ci/packages.txt lists and is not installed, leaving out names that match PATTERN.
install_packages() {
    local package
    missing_packages=()
    while read -r package; do
        if [[ -n ${1:-} && $package =~ $1 ]]; then continue; fi
        if ! dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
            missing_packages+=("$package")
        fi
    done < <(grep -v '^#' .ci/packages.txt)
    if ((${#missing_packages[@]} == 0)); then return 0; fi
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -qq &&
        as_root apt-get install -y -qq --no-install-recommends "${missing_packages[@]}"
}

jobs() { nproc; }
