// SPDX-License-Identifier: Apache-2.0
// A training run that somebody measured, as a plain value: what ran, what it showed, and what that figure is.
#pragma once

#include <optional>
#include <string>

#include "models/settings.hpp"

namespace headroom {

/// What a figure is. Peaks are of the worst rank unless the source says otherwise.
enum class Figure {
    verdict,         ///< no figure: it ran, or it did not
    peak,            ///< device memory, the source does not say which kind
    peak_allocated,  ///< torch.cuda.max_memory_allocated
    peak_reserved,   ///< torch.cuda.max_memory_reserved
    device_used,     ///< nvidia-smi: CUDA context, NCCL and cached blocks included
    // Parts of the allocated peak as the UPipe paper's figure splits it.
    states,
    attention,
    other,
    host_memory,    ///< of one node
    host_pageable,  ///< of one node, pinned memory left out
    max_context,
    tokens_per_second,          ///< of the whole job
    tokens_per_second_per_gpu,  ///< tokens of a context-parallel group counted once
    step_seconds,
    model_tflops,  ///< a GPU, causal attention halved, recomputation not counted
    reported,      ///< a rate whose convention is the source's own (MFU, TFLOPS): listed, not compared
};

constexpr bool is_time(Figure figure) { return figure >= Figure::tokens_per_second && figure <= Figure::model_tflops; }
constexpr bool is_memory(Figure figure) { return figure >= Figure::peak && figure <= Figure::host_pageable; }

struct Metric {
    Figure figure = Figure::verdict;
    std::string name;  ///< with its unit, as files spell it: `peak_allocated_gib`
    double unit = 1;   ///< in bytes, tokens, seconds or tokens a second
};

enum class RunStatus {
    ok,       ///< it ran
    oom,      ///< it ran out of memory, or its authors say that memory cannot hold it
    not_run,  ///< nothing is known
};

struct Measurement {
    std::string id;
    std::string set;     ///< name of the file it came from, without extension
    std::string source;  ///< who published it
    std::string url;
    std::string location;    ///< table, figure or file in the source
    std::string confidence;  ///< how the figure was read: table_text, figure_digitised, ...
    std::string note;
    std::string place;  ///< file:line of the entry

    std::string model_name;
    std::string cluster_name;
    /// Empty for a run that can be predicted; else why it cannot, and the fields below it are empty.
    std::string not_expressed;
    Transformer model;
    Cluster cluster;
    Settings said;
    Settings published;  ///< of the method

    Metric metric;
    std::optional<double> value;        ///< in the unit of the metric
    std::optional<double> uncertainty;  ///< half-width, in the same unit
    RunStatus status = RunStatus::ok;

    std::optional<double> in_base_units() const {
        return value ? std::optional<double>(*value * metric.unit) : std::nullopt;
    }
};

}  // namespace headroom
