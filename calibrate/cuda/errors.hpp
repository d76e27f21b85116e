// SPDX-License-Identifier: Apache-2.0
// Errors of the CUDA libraries as ours: symbol, number, call and what to do.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace headroom {

/// Throws Error (failure) unless the call succeeded. `call` is its name, with what matters of its arguments.
void check_cuda(cudaError_t status, const std::string& call);

/// What a user can do about a CUDA error; empty when there is nothing to say.
std::string cuda_hint(cudaError_t status);

/// "CUDA 13.0", from 13000.
std::string cuda_version_text(int version);

}  // namespace headroom
