// SPDX-License-Identifier: Apache-2.0
// The GPUs of several processes, of one node or many, as one device: probes of collectives run on all of them, the rest
// on the first process alone.
#pragma once

#include <memory>
#include <string>

#include "calibrate/crew.hpp"
#include "calibrate/device.hpp"

namespace headroom {

/// Leads the crew; `node` tells this process's node from others.
std::unique_ptr<Device> lead_crew(std::unique_ptr<Device> own, Crew crew, const JobPlace& place,
                                  const std::string& node);

/// Does what the leader says until it ends. Throws Error when the leader vanishes.
void serve_crew(Device& own, CrewMember& member, const JobPlace& place, const std::string& node);

}  // namespace headroom
