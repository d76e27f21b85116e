#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that has to hold before a change goes in: builds without a warning, all tests, formatting, lint.
# Silent steps; at the end the summary of ctest and one line.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=.ci/steps.sh
source .ci/steps.sh

build=build/check

ours() { git ls-files -- "$@" 2>/dev/null || find "${@#\*}" -type f; }

format() { git ls-files -z -- '*.cpp' '*.hpp' | xargs -0 -P "$(jobs)" -n 16 clang-format --dry-run -Werror; }

# Files of the repository that the build compiles. A file that passed is not looked at again until what it is
# preprocessed to, or .clang-tidy, changes.
lint() {
    git ls-files -z -- '*.cpp' | xargs -0 -P "$(jobs)" -n 1 .ci/tidy_one.sh "$build"
}

test_all() { ctest --test-dir "$build" --parallel "$(jobs)" --output-on-failure --output-junit junit.xml; }

step "install packages" install_packages
step "formatting (clang-format -i repairs it)" format
step "configure" cmake --preset check
step "build" cmake --build --preset check --parallel "$(jobs)"
STEP_TAIL=80 step "lint" lint
status=0
test_all >"$steps_log/ctest" 2>&1 || status=$?
if ((status != 0)); then
    cat "$steps_log/ctest"
    say "failed: tests"
    exit 1
fi
tail -n 5 "$steps_log/ctest"
echo "all checks passed"
