// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/version.hpp"

#include "version_text.hpp"

namespace headroom {

const char* program_version() { return headroom_version; }

}  // namespace headroom
