// SPDX-License-Identifier: Apache-2.0
// Where the model states live: how many bytes of parameters, optimizer and gradients one rank holds for the whole step.
#pragma once

#include "models/workload.hpp"

namespace headroom {

/// Bytes of one rank. Each is on the device or, when offloaded, pinned on the host.
struct StateBytes {
    Bytes parameters;             ///< the shard (or replica) of the parameters that stays between steps
    Bytes optimizer;              ///< fp32 master where it is not `parameters`, and Adam's two moments
    Bytes gradients;              ///< kept for the whole step; 0 when they come and go with the backward (FSDP)
    Bytes reduce_bucket;          ///< DeepSpeed's reduce bucket
    Bytes live_parameters;        ///< DeepSpeed ZeRO-3: gathered parameters it keeps
    bool gathers_blocks = false;  ///< parameters are gathered block by block
    bool fsdp = false;
};

StateBytes state_bytes(const Workload& work);

}  // namespace headroom
