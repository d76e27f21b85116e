// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace headroom {

/// "headroom 0.1.0 (commit)". Apart, so that a new commit compiles one small file again.
const char* program_version();

}  // namespace headroom
