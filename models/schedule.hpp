// SPDX-License-Identifier: Apache-2.0
// What one rank does in a training step, in host program order: the tensors it allocates and frees, and the work it
// launches. The planner replays it for bytes, the simulator for seconds.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include "models/computation.hpp"
#include "models/units.hpp"

namespace headroom {

/// What a tensor is for. The order is the order of the report.
enum class Group : std::uint8_t {
    states,      ///< master parameters, optimizer moments, kept gradient shards
    parameters,  ///< gathered weights of the running blocks
    gradients,   ///< unsharded gradients and reduction buffers
    attention,
    mlp,
    norm,
    loss,
    saved,          ///< block inputs kept for backward
    residual,       ///< the hidden state and its gradient
    communication,  ///< send and receive copies of collectives
    tables,         ///< rotary tables, tokens, labels
    workspace,
};
inline constexpr std::size_t group_count = 12;
std::string_view to_string(Group group);

/// Groups that are activations in the sense of the papers: they grow with the tokens of a rank.
constexpr bool is_activation(Group group) { return group >= Group::attention && group <= Group::communication; }

enum class Place : std::uint8_t { device, host_pinned, host_pageable };
enum class Stream : std::uint8_t {
    compute,
    ulysses,
    ring,
    all_gather,
    reduce_scatter,
    host_to_device,
    device_to_host,
};
inline constexpr std::size_t stream_count = 7;
std::string_view to_string(Stream stream);

enum class Phase : std::uint8_t { setup, forward, loss, recompute, backward, optimizer };
inline constexpr std::size_t phase_count = 6;
std::string_view to_string(Phase phase);

/// C[m,n] = A[m,k] B[k,n], launched `count` times; `adds` to what C holds, which is read then, too.
struct Gemm {
    std::int64_t m, n, k;
    std::int32_t count;
    bool adds;
};

/// One fused attention kernel. `causal` is a square with the diagonal at its top left corner.
struct Attention {
    std::int64_t query_len, key_len;
    std::int32_t heads, kv_heads, head_dim, batch;
    bool causal, backward;
    bool operator==(const Attention&) const = default;
};

/// How close to the copy rate a memory-bound kernel runs; the simulator has one rate for each.
enum class MemoryKernel : std::uint8_t { copy, eager, norm_forward, norm_backward, mixed_add, transpose, optimizer };

struct MemoryBound {
    MemoryKernel kernel;
    std::int64_t read, written;  ///< bytes over all launches
    std::int32_t count;          ///< launches
};

enum class CollectiveKind : std::uint8_t { all_to_all, all_gather, reduce_scatter, send_recv, barrier };
enum class CommGroup : std::uint8_t { ulysses, ring, context, sharding };

/// `bytes` are what the caller's tensor holds on one rank: the whole send buffer of an all-to-all, the gathered
/// output of an all-gather, the full input of a reduce-scatter, one message of a send/recv.
struct Collective {
    CollectiveKind kind;
    CommGroup group;
    std::int64_t bytes;
};

struct Copy {
    bool to_host;
    bool pinned;
    bool fresh;  ///< the host side is newly allocated memory, so pages fault while it is copied
    std::int64_t bytes;
};

/// The host is busy, or waits for a stream, and launches nothing meanwhile.
struct HostWork {
    enum class Kind : std::uint8_t { tokenise, zero_fill, other } kind;
    std::int64_t amount;  ///< tokens or bytes
};

enum class EventKind : std::uint8_t {
    allocate,
    release,
    phase,  ///< from here on the segment is in phase `id`
    loop,   ///< the next `id` events run `bytes` times; each run ends with as many bytes as it began
    call,   ///< the events of routine `id` stand here
    gemm,
    attention,
    memory_bound,
    collective,
    copy,
    record,     ///< an event on `stream` under number `id`
    wait,       ///< `stream` waits for the latest record of `id`
    host_wait,  ///< the host waits until `stream` has run dry
    host_work,
};

using TensorId = std::uint32_t;
using SyncId = std::uint32_t;
using RoutineId = std::uint32_t;

struct Event {
    EventKind kind;
    Stream stream;
    Group group;
    Place place;
    std::uint32_t id;  ///< TensorId, SyncId or RoutineId
    const char* name;  ///< a string literal
    union {
        std::int64_t bytes;  ///< allocate; runs of a loop
        Gemm gemm;
        Attention attention;
        MemoryBound memory_bound;
        Collective collective;
        Copy copy;
        HostWork host_work;
    };
};

/// A run of events that is executed `repeat` times in a row. Each repetition allocates and frees the same bytes;
/// a tensor that outlives its repetition is freed by a later segment, last one first.
struct Segment {
    const char* name;
    Phase phase;
    std::uint32_t first, last;  ///< [first, last) in Schedule::events
    std::uint32_t repeat;
};

/// Events that several segments call; they belong to no segment. A routine calls no other one, and its tensors and
/// syncs are the same at every call.
struct Routine {
    Phase phase;                ///< in which it is called
    std::uint32_t first, last;  ///< [first, last) in Schedule::events
};

/// What the launch at `event` computes; a launch that stands for several kernels has several.
struct Description {
    std::uint32_t event;
    Computation computation;
};

struct Schedule {
    std::vector<Event> events;
    std::vector<Segment> segments;
    std::vector<Routine> routines;
    std::vector<Description> descriptions;  ///< in the order of events; only in schedules written to be run
    std::uint32_t tensors = 0;              ///< TensorIds in use are below this
    std::uint32_t syncs = 0;

    void clear();
};

/// Calls `visit(event)` for every event in [first, last) as it happens: loops and calls written out.
template <class Visit>
void for_each_event(const Schedule& schedule, std::uint32_t first, std::uint32_t last, Visit& visit) {
    for (std::uint32_t i = first; i < last; ++i) {
        const Event& event = schedule.events[i];
        if (event.kind == EventKind::call) {
            const Routine& routine = schedule.routines[event.id];
            for_each_event(schedule, routine.first, routine.last, visit);
        } else if (event.kind == EventKind::loop) {
            for (std::int64_t k = 0; k < event.bytes; ++k) for_each_event(schedule, i + 1, i + 1 + event.id, visit);
            i += event.id;
        } else {
            visit(event);
        }
    }
}

/// The same for one repetition of a segment.
template <class Visit>
void for_each_event(const Schedule& schedule, const Segment& segment, Visit visit) {
    for_each_event(schedule, segment.first, segment.last, visit);
}

/// Calls `visit(event, times)` for what is written in [first, last): the body of a loop once, with the number of times
/// it runs, and a routine once for each call. For sums over a schedule.
template <class Visit>
void for_each_written(const Schedule& schedule, std::uint32_t first, std::uint32_t last, std::int64_t times,
                      Visit& visit) {
    for (std::uint32_t i = first; i < last; ++i) {
        const Event& event = schedule.events[i];
        if (event.kind == EventKind::call) {
            const Routine& routine = schedule.routines[event.id];
            for_each_written(schedule, routine.first, routine.last, times, visit);
        } else if (event.kind == EventKind::loop) {
            for_each_written(schedule, i + 1, i + 1 + event.id, times * event.bytes, visit);
            i += event.id;
        } else {
            visit(event, times);
        }
    }
}

/// The same for all repetitions of a segment.
template <class Visit>
void for_each_written(const Schedule& schedule, const Segment& segment, Visit visit) {
    for_each_written(schedule, segment.first, segment.last, segment.repeat, visit);
}

/// Writes a schedule. All methods append; nothing is ever reordered.
class Builder {
 public:
    explicit Builder(Schedule& schedule) : schedule_(schedule) { schedule_.clear(); }
    /// From here on launches say what they compute, and loops are written out.
    void describe() { describing_ = true; }
    bool describing() const { return describing_; }

    /// Starts a segment; the former one ends here.
    void segment(const char* name, Phase phase, std::int64_t repeat = 1);
    void finish();
    /// Writes `body` once, outside of the segments, for them to call. The open segment ends here.
    template <class Body>
    RoutineId routine(Phase phase, Body body) {
        finish();
        const auto first = static_cast<std::uint32_t>(schedule_.events.size());
        body();
        schedule_.routines.push_back({phase, first, static_cast<std::uint32_t>(schedule_.events.size())});
        return static_cast<RoutineId>(schedule_.routines.size() - 1);
    }
    void call(RoutineId routine) { append(EventKind::call, "").id = routine; }
    /// The rest of the segment belongs to another phase (a checkpointed block is recomputed, then goes backward).
    void phase(Phase phase) { append(EventKind::phase, "").id = static_cast<std::uint32_t>(phase); }

    /// The stream whose memory pool new device tensors come from, and whose kernels are launched.
    void use(Stream stream) { stream_ = stream; }

    TensorId allocate(const char* name, Group group, Bytes bytes, Place place = Place::device) {
        return allocate_again(reserve(), name, group, bytes, place);
    }
    /// One more tensor under an existing id, as a repeated segment does; a release then frees the youngest.
    TensorId allocate_again(TensorId id, const char* name, Group group, Bytes bytes, Place place = Place::device) {
        Event& event = append(EventKind::allocate, name);
        event.group = group;
        event.place = place;
        event.id = id;
        event.bytes = bytes.value;
        return id;
    }
    /// The successor of a tensor that a loop hands from run to run: one more under its id, or in a schedule that is to
    /// be run a tensor of its own.
    TensorId renew(TensorId id, const char* name, Group group, Bytes bytes) {
        return describing_ ? allocate(name, group, bytes) : allocate_again(id, name, group, bytes);
    }
    /// An id for allocate_again.
    TensorId reserve() { return schedule_.tensors++; }
    void release(TensorId tensor) { append(EventKind::release, "").id = tensor; }
    template <class... Ids>
    void release(TensorId first, Ids... rest) {
        release(first);
        release(rest...);
    }

    /// Writes `body(run)`, or `body()`, once, to be executed `count` times. It must free what it allocates (or as much
    /// of the same size).
    template <class Body>
    void loop(std::int64_t count, Body body) {
        const auto write = [&](std::int64_t run) {
            if constexpr (std::is_invocable_v<Body, std::int64_t>) {
                body(run);
            } else {
                body();
            }
        };
        if (count <= 0) return;
        if (describing_) {
            for (std::int64_t run = 0; run < count; ++run) write(run);
            return;
        }
        const std::size_t at = schedule_.events.size();
        if (count > 1) append(EventKind::loop, "").bytes = count;
        write(0);
        if (count > 1) schedule_.events[at].id = static_cast<std::uint32_t>(schedule_.events.size() - at - 1);
    }

    void gemm(const char* name, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count = 1,
              bool adds = false);
    void attention(const char* name, const Attention& shape);
    void memory_bound(const char* name, MemoryKernel kernel, Bytes read, Bytes written, std::int64_t count = 1);
    /// On `on`; `blocking` makes it wait for the compute stream and the compute stream wait for it.
    void collective(const char* name, Stream on, CollectiveKind kind, CommGroup group, Bytes bytes, bool blocking);
    void copy(const char* name, Stream on, const Copy& copy);
    SyncId record(Stream stream) {
        const SyncId sync = schedule_.syncs++;
        record_again(stream, sync);
        return sync;
    }
    void record_again(Stream stream, SyncId sync);
    /// The first of `count` ids for record_again.
    SyncId reserve_syncs(std::int64_t count) {
        const SyncId first = schedule_.syncs;
        schedule_.syncs += static_cast<std::uint32_t>(count);
        return first;
    }
    void wait(Stream stream, SyncId sync);
    void host_wait(const char* name, Stream stream);
    void host_work(const char* name, HostWork::Kind kind, std::int64_t amount);

    /// The last launch computes this.
    template <class What>
    void computes(const What& what) {
        if (describing_) schedule_.descriptions.push_back({launch_, what});
    }

 private:
    Event& launch(EventKind kind, const char* name) {
        launch_ = static_cast<std::uint32_t>(schedule_.events.size());
        return append(kind, name);
    }
    Event& append(EventKind kind, const char* name) {
        Event& event = schedule_.events.emplace_back();
        event.kind = kind;
        event.stream = stream_;
        event.group = Group::workspace;
        event.name = name;
        return event;
    }

    Schedule& schedule_;
    Stream stream_ = Stream::compute;
    bool open_ = false;  ///< a segment is
    bool describing_ = false;
    std::uint32_t launch_ = 0;  ///< the last one
};

}  // namespace headroom
