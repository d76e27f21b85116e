// SPDX-License-Identifier: Apache-2.0
// Plays a schedule on CUDA streams, in host program order.
//
// * The host issues one event after another; every launch costs it time. An op starts when its stream is free, it has
//   been issued, and what the stream waits for is done. A host wait holds back everything issued later.
// * The host runs at most one repetition of a segment ahead of the compute stream (CUDA queues about a thousand
//   launches), so every segment has a steady state.
// * A collective beside compute takes its share of the SMs; under a persistent attention kernel a ring transfer and
//   the kernel add up. One issued after the kernels it overlaps delays the end of the compute stream by what it takes.
// * Collectives of one link carry their bytes one after another, in the order they were issued.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/schedule.hpp"
#include "simulator/op_cost.hpp"

namespace headroom {

/// One op on one stream, for a trace. Seconds from the start of the step.
struct Slice {
    enum class Kind : std::uint8_t {
        op,       ///< an event of the schedule
        on_host,  ///< an event of the schedule that keeps the host busy; `stream` means nothing
        held_up,  ///< the compute stream lost this time to a collective issued after its kernels
    };
    Stream stream;
    CostClass cost_class;
    Kind kind;
    Phase phase;
    std::uint32_t segment, repetition;
    const char* name;
    double start, duration;
};

struct PlayOptions {
    bool every_repetition = false;  ///< never skip ahead once a segment repeats itself
    Overlap ring_overlap = Overlap::serialised;
    std::vector<Slice>* slices = nullptr;  ///< filled with every op; implies every_repetition
};

struct Playback {
    double seconds = 0;
    std::array<double, cost_class_count> busy{};     ///< alone, over all streams
    std::array<double, cost_class_count> exposed{};  ///< of the step; sums to `seconds`
    double ring_under_attention = 0;                 ///< seconds a ring transfer ran beside an attention kernel
    std::uint32_t domain = 0;
    std::uint64_t events_played = 0;
};

/// Owns its buffers: reuse one Timeline for many schedules, and nothing is allocated after the largest.
class Timeline {
 public:
    const Playback& play(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                         AttentionKernel kernel, const PlayOptions& options);
    /// The schedule and constants of the last play() under other options, without working out the costs again.
    const Playback& play_again(const PlayOptions& options);

 private:
    enum class Kind : std::uint8_t { run, join, record, wait, host_wait, host_work, loop, call };
    enum class Beside : std::uint8_t { nothing, kernels, attention };  ///< what a collective takes SMs from
    enum class Link : std::uint8_t { none, inside, across };

    /// An event with its cost worked out.
    struct Step {
        double seconds = 0, launch = 0, later_launches = 0;
        const char* name = nullptr;
        /// Of this kernel and those right behind it on the compute stream: with the host ahead they are one.
        double chain_seconds = 0, chain_launches = 0;
        std::uint32_t chain = 0;  ///< how many; 0 for all other steps
        std::uint32_t sync = 0;   ///< or the number of the loop whose body follows, or of the routine
        Kind kind = Kind::run;
        Stream stream = Stream::compute;
        Stream joined = Stream::compute;  ///< a join: `stream` waits for what this one has so far
        CostClass cost_class = CostClass::host_gap;
        Phase phase = Phase::setup;
        Beside beside = Beside::nothing;
        Link link = Link::none;
        bool blocks_host = false;
        bool collective = false;
        bool ends_range = false;
    };
    /// A moment, and what the time before it was spent on: `cost_class` from `start`, `before` ahead of that.
    struct Moment {
        double end = 0, start = 0;
        CostClass cost_class = CostClass::host_gap, before = CostClass::host_gap;
    };
    struct Interval {
        double start, end;
        double carries_from;  ///< a collective that waits for the link holds its SMs from `start`
        CostClass cost_class;
        Link link;
        Beside beside;
        Interval moved(double by) const { return {start + by, end + by, carries_from + by, cost_class, link, beside}; }
    };
    /// The latest intervals of a stream, oldest overwritten.
    template <std::size_t Capacity>
    struct Recent {
        std::array<Interval, Capacity> ring;
        std::size_t written = 0;
        void push(const Interval& interval) { ring[written++ % Capacity] = interval; }
        std::size_t size() const { return written < Capacity ? written : Capacity; }
        const Interval& newest(std::size_t back) const { return ring[(written - 1 - back) % Capacity]; }
        Interval& newest(std::size_t back) { return ring[(written - 1 - back) % Capacity]; }
    };

    /// Steps that are played `repeat` times: a segment, a loop inside one, or a routine.
    struct Range {
        std::uint32_t first, last;  ///< steps_
        std::uint32_t repeat;
        Phase ends_in;
        /// syncs_of_: those it waits for before it records them, then those it records.
        std::uint32_t carried = 0, recorded = 0, end = 0;
    };

    /// The state as far as what follows can see it, relative to the end of the compute stream.
    struct Snapshot {
        std::vector<double> values;
        std::size_t size = 0;
        bool alike(const Snapshot& other, double tolerance) const;
    };
    /// A call of a routine as it was played: from the same start it goes the same way.
    struct Passage {
        bool known = false;
        Snapshot start;
        double begun = 0;  ///< end of the compute stream then; what follows is afterwards
        double host = 0, compute_done = 0, collectives_until = 0;
        Moment host_released;
        bool host_waited = false;
        std::array<Moment, stream_count> ready;
        std::array<std::vector<Interval>, stream_count> collectives;
        std::vector<Interval> compute;
        std::array<double, cost_class_count> exposed{};
        double ring_under_attention = 0;
    };
    /// Shorter routines are played in less time than their start is compared.
    static constexpr std::uint32_t shortest_passage = 64;

    struct Compiler;
    void find_syncs(Range& range);
    void list_syncs(std::uint32_t first, std::uint32_t last);
    void find_chains();
    void total_work();
    void add_work(const Range& range, double times);
    void play_range(const Range& range, std::size_t depth);
    void play_once(const Step* first, const Step* last);
    void play_call(std::uint32_t routine);
    void remember(Passage& passage, const Playback& before) const;
    void pass_again(const Passage& passage);
    double tolerance() const;
    void run(const Step& step);
    bool run_chain(const Step& step);
    void note(const Step& step, Slice::Kind kind, Stream stream, const char* name, double start, double duration) {
        if (options_.slices == nullptr) return;
        options_.slices->push_back(
            {stream, step.cost_class, kind, step.phase, segment_, repetition_, name, start, duration});
    }
    void extend_compute(const Step& step, double start, double end);
    void run_on_compute(const Step& step, double issue, double least_end);
    double run_elsewhere(const Step& step, double start);
    double stretched(const Step& step, double start);
    void take_from_compute(const Step& step, double start, double end);
    void explain(double from, double to, const Moment& ready);
    void credit(double from, double to, const Moment& moment);
    void snapshot(Snapshot& state) const;
    void add_carried(const Range& range, Snapshot& state) const;
    void skip(const Range& range, std::uint32_t repetitions, double period);
    double share_taken(Beside beside, CostClass collective) const;

    CostMemo memo_;
    std::vector<Step> steps_;
    std::vector<Range> segments_;
    std::vector<Range> loops_;
    std::vector<Range> routines_;
    std::vector<double> calls_;  ///< of each routine in a step
    /// Some sync is waited for elsewhere than right behind its record. Nothing of the following is needed otherwise.
    bool keeps_syncs_ = false;
    std::vector<std::uint32_t> syncs_of_;     ///< of the ranges
    std::vector<std::uint32_t> recorded_in_;  ///< by sync, the last find_syncs() that saw it recorded
    std::vector<std::uint32_t> recorded_;     ///< scratch of find_syncs()
    std::uint32_t marks_ = 0;
    std::uint32_t domain_ = 0;
    /// What no play can change: time on its stream, and for kernels of the compute stream their share of the step.
    std::array<double, cost_class_count> busy_{}, exposed_{};

    std::uint32_t segment_ = 0, repetition_ = 0;  ///< that is being played
    double host_ = 0;
    Moment host_released_;  ///< what last held the host back
    bool host_waited_ = false;
    double after_wait_ = 0;
    double one_back_ = 0;  ///< end of the compute stream when the repetition before this one began
    std::array<Moment, stream_count> ready_;
    double compute_done_ = 0;
    std::vector<Moment> syncs_;
    std::array<Recent<16>, stream_count> collectives_;
    double collectives_until_ = 0;
    Recent<32> compute_;
    double collective_share_ = 0;
    PlayOptions options_;
    bool may_skip_ = true;
    Playback result_;

    static constexpr std::size_t depths = 2;  ///< segments, and loops in them
    std::array<Snapshot, depths> state_, state_before_;
    std::vector<Passage> passages_;  ///< the last of each routine
    Snapshot start_;
};

}  // namespace headroom
