// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/program_version.hpp"

#include "version.hpp"

namespace headroom {

const char* program_version() { return headroom_version; }

}  // namespace headroom
