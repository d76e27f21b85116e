// SPDX-License-Identifier: Apache-2.0
#include "planner/structure_search.hpp"

#include <algorithm>
#include <cmath>

#include "models/states.hpp"
#include "models/training_step.hpp"
#include "planner/outside.hpp"

namespace headroom {
namespace {

/// What single changes may be wrong by when they are added up: a share of the changes, for what hides under what, and
/// of the step, for rounding. Tests compare with every candidate evaluated.
constexpr double slack_of_changes = 0.1;
constexpr double slack_of_step = 1e-5;

Bytes share(Bytes bytes, double part) { return {static_cast<std::int64_t>(static_cast<double>(bytes.value) * part)}; }

/// States that this choice keeps on the device although it could have them on the host.
Bytes movable_states(const Workload& work, const StateChoice& choice) {
    const StateBytes bytes = state_bytes(work);
    Bytes kept;
    if (!choice.optimizer_on_host) kept += bytes.optimizer + bytes.gradients;
    if (!choice.parameters_on_host) kept += bytes.parameters;
    return kept;
}

constexpr std::uint8_t Options::*axes[]{&Options::placement, &Options::states, &Options::chunks,
                                        &Options::norm,      &Options::mlp,    &Options::loss};

}  // namespace

Bytes device_limit(const Bed& bed, const Recipe& recipe) {
    return share(bed.cluster.device_memory - sum(outside_terms(bed.cluster, recipe)), 1 - bed.margin.device);
}

Bytes host_limit(const Bed& bed) { return share(usable_host_memory(bed.cluster), 1 - bed.margin.host); }

std::int64_t StructureSearch::index_of(const Options& options) const {
    const auto size = [](const auto& list) { return static_cast<std::int64_t>(list.size()); };
    std::int64_t index = options.placement;
    index = index * size(structure_.states) + options.states;
    index = index * size(structure_.chunks_on_host) + options.chunks;
    index = index * size(structure_.norm) + options.norm;
    index = index * size(structure_.mlp) + options.mlp;
    return index * size(structure_.loss) + options.loss;
}

StructureSearch::StructureSearch(const Structure& structure, std::size_t number, const Bed& bed, Evaluator& evaluator)
    : structure_(structure),
      number_(number),
      bed_(bed),
      evaluator_(evaluator),
      device_limit_(device_limit(bed, structure.base)),
      host_limit_(host_limit(bed)),
      kept_states_(structure.states.size()),
      lean_states_(structure.states.size()),
      lean_(static_cast<std::size_t>(structure.size())) {
    Options options;
    for (std::size_t i = 0; i < structure.states.size(); ++i) {
        options.states = static_cast<std::uint8_t>(i);
        kept_states_[i] =
            movable_states(make_workload(bed.model, bed.cluster, structure.recipe(options)), structure.states[i]);
    }
    for (std::size_t i = 0; i < structure.states.size(); ++i) {
        std::size_t lean = i;
        for (std::size_t j = 0; j < structure.states.size(); ++j) {
            const bool same = structure.states[j].strategy == structure.states[i].strategy;
            if (same && kept_states_[j] < kept_states_[lean]) lean = j;
        }
        lean_states_[i] = static_cast<std::uint8_t>(lean);
    }
}

Candidate StructureSearch::evaluated(const Options& options) {
    Candidate candidate = evaluate(evaluator_, structure_.recipe(options), bed_);
    candidate.departures = departures(candidate.recipe, structure_.published);
    candidate.chunk_steps = chunk_steps(candidate.recipe, structure_.published);
    candidate.family = structure_.family;
    candidate.structure = number_;
    candidate.index = index_of(options);
    return candidate;
}

std::optional<Candidate> StructureSearch::fitting(const Options& options) {
    const auto [known, fresh] = seen_.try_emplace(index_of(options));
    if (!fresh) return known->second;
    const Candidate candidate = evaluated(options);
    ++counts_.evaluated;
    if (!fits(candidate.evaluation.memory, candidate.recipe, bed_)) return std::nullopt;
    ++counts_.fitting;
    known->second = candidate;
    return candidate;
}

std::optional<Candidate> StructureSearch::exhaustive(double tie) {
    std::vector<Candidate> list;
    for (std::int64_t i = 0; i < structure_.size(); ++i) {
        if (auto candidate = fitting(structure_.options(i))) list.push_back(*candidate);
    }
    something_fits_ = !list.empty();
    // What sticks in the allocator is looked at last, and only where it matters.
    while (const Candidate* chosen = choose(list, tie)) {
        const auto fastest = std::min_element(list.begin(), list.end(), better);
        if (!holds(evaluator_, fastest->recipe, bed_)) {
            list.erase(fastest);
        } else if (!holds(evaluator_, chosen->recipe, bed_)) {
            list.erase(list.begin() + (chosen - list.data()));
        } else {
            return *chosen;
        }
    }
    return std::nullopt;
}

const Verdict& StructureSearch::lean_verdict(Options options) {
    options.states = lean_states_[options.states];
    Lean& lean = lean_[static_cast<std::size_t>(index_of(options))];
    if (!lean.known) {
        lean.verdict = evaluator_.verdict(bed_.model, bed_.cluster, structure_.recipe(options));
        lean.known = true;
    }
    return lean.verdict;
}

bool StructureSearch::may_fit(const Options& options) {
    const Bytes states = kept_states_[options.states] - kept_states_[lean_states_[options.states]];
    Options leaner = options;
    leaner.placement = static_cast<std::uint8_t>(structure_.placements.size() - 1);
    if (lean_verdict(leaner).device_peak + states > device_limit_) return false;
    const Verdict& own = lean_verdict(options);
    return own.device_peak + states <= device_limit_ &&
           own.host_peak_per_node - states * bed_.cluster.gpus_per_node <= host_limit_;
}

/// Whether the step's peak lies in the attention part of a checkpointed block, where no tiled layer is alive: then
/// tilings cannot lower it.
bool StructureSearch::attention_decides(const Options& options) {
    const Recipe recipe = structure_.recipe(options);
    if (recipe.checkpointing == Checkpointing::none) return false;
    Bytes peak;
    bool attention = false;
    for (const RingRole role : ring_roles(recipe)) {
        build_training_step(make_workload(bed_.model, bed_.cluster, recipe, role), evaluator_.schedule);
        const MemoryProfile& profile = evaluator_.replay.run(evaluator_.schedule);
        if (profile.device_peak <= peak) continue;
        peak = profile.device_peak;
        const Group group = evaluator_.schedule.events[profile.at.event].group;
        attention = group == Group::attention || group == Group::communication;
    }
    return attention;
}

bool StructureSearch::anything_may_fit() {
    // The lists of options lead from fat to lean: mostly the last fits.
    Options lean = structure_.options(structure_.size() - 1);
    for (std::size_t strategy = structure_.states.size(); strategy-- > 0;) {
        if (lean_states_[strategy] != strategy) continue;
        for (std::size_t chunks = structure_.chunks_on_host.size(); chunks-- > 0;) {
            lean.states = static_cast<std::uint8_t>(strategy);
            lean.chunks = static_cast<std::uint8_t>(chunks);
            if (may_fit(lean)) return true;
            if (lean_verdict(lean).device_peak > device_limit_ && attention_decides(lean)) continue;
            for (std::int64_t i = structure_.size(); i-- > 0;) {
                const Options options = structure_.options(i);
                const bool same = options.chunks == chunks && lean_states_[options.states] == strategy;
                if (same && may_fit(options)) return true;
            }
        }
    }
    return false;
}

/// Without checkpointing, what all blocks keep decides. A block's passing tensors and the loss take less than what
/// eight blocks keep, so the leanest option speaks for the others.
bool StructureSearch::keeping_everything_fails(std::size_t placement) {
    constexpr double blocks = 8;
    const double kept = 1 - blocks / static_cast<double>(bed_.model.layers);
    Options lean = structure_.options(structure_.size() - 1);
    lean.placement = static_cast<std::uint8_t>(placement);
    for (std::size_t strategy = 0; strategy < structure_.states.size(); ++strategy) {
        if (lean_states_[strategy] != strategy) continue;
        lean.states = static_cast<std::uint8_t>(strategy);
        if (share(lean_verdict(lean).device_peak, kept) <= device_limit_) return false;
    }
    return true;
}

bool StructureSearch::any_fits() {
    if (!anything_may_fit()) return false;
    for (std::int64_t i = structure_.size(); i-- > 0;) {
        const Options options = structure_.options(i);
        if (!may_fit(options)) continue;
        const Recipe recipe = structure_.recipe(options);
        if (fits(evaluator_.verdict(bed_.model, bed_.cluster, recipe), recipe, bed_)) return true;
    }
    return false;
}

/// Appends the candidates that can be as fast as the threshold.
void StructureSearch::predict(Checkpointing checkpointing, double threshold, std::vector<Predicted>& list) {
    const auto& places = structure_.placements;
    const auto place = std::find_if(places.begin(), places.end(),
                                    [&](const Placement& p) { return p.checkpointing == checkpointing; });
    if (place == places.end()) return;
    const auto number = static_cast<std::size_t>(place - places.begin());
    if (checkpointing == Checkpointing::none && keeping_everything_fails(number)) return;
    Options reference;
    reference.placement = static_cast<std::uint8_t>(number);
    const StepTime step = evaluated(reference).evaluation.step;
    // Attention runs on the compute stream and is the same for all options: no step is shorter.
    const Seconds attention = step.parts[static_cast<std::size_t>(Part::attention)].busy;
    const double slowest = tokens_per_second_per_gpu(structure_.base, Seconds{1}) / threshold;
    if (attention.value > slowest) return;

    constexpr double unknown = -1e30;
    std::array<std::array<double, 16>, std::size(axes)> change{};
    for (auto& axis : change) axis.fill(unknown);
    for (std::int64_t i = 0; i < structure_.size(); ++i) {
        const Options options = structure_.options(i);
        if (places[options.placement].checkpointing != checkpointing) continue;
        double changes = 0;
        double sum = step.seconds.value;
        for (std::size_t axis = 0; axis < std::size(axes); ++axis) {
            const std::uint8_t value = options.*axes[axis];
            if (value == reference.*axes[axis]) continue;
            double& known = change[axis][value];
            if (known == unknown) {
                Options changed = reference;
                changed.*axes[axis] = value;
                known = (evaluated(changed).evaluation.step.seconds - step.seconds).value;
            }
            sum += known;
            changes += std::abs(known);
        }
        const double least = sum - slack_of_changes * changes - slack_of_step * step.seconds.value;
        if (least <= slowest)
            list.push_back({options, least, departures(structure_.recipe(options), structure_.published)});
    }
}

std::optional<Candidate> StructureSearch::pruned(double threshold, double tie) {
    something_fits_ = anything_may_fit();
    if (!something_fits_) return std::nullopt;
    std::vector<Predicted> list;
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
        predict(checkpointing, threshold, list);
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Predicted& a, const Predicted& b) { return a.least_seconds < b.least_seconds; });
    const double tokens = tokens_per_second_per_gpu(structure_.base, Seconds{1});
    std::optional<Candidate> fastest;
    for (const Predicted& predicted : list) {
        if (fastest && tokens / predicted.least_seconds < fastest->speed) break;
        if (!may_fit(predicted.options)) continue;
        const auto candidate = fitting(predicted.options);
        if (!candidate || (fastest && !better(*candidate, *fastest))) continue;
        if (holds(evaluator_, candidate->recipe, bed_)) fastest = candidate;
    }
    if (!fastest || fastest->speed < threshold) return std::nullopt;

    // Of what is as good as the fastest, the nearest to the published recipe: level by level.
    std::stable_sort(list.begin(), list.end(),
                     [](const Predicted& a, const Predicted& b) { return a.departures < b.departures; });
    std::optional<Candidate> chosen;
    for (const Predicted& predicted : list) {
        if (chosen && predicted.departures > chosen->departures) break;
        if (tokens / predicted.least_seconds < fastest->speed * (1 - tie) || !may_fit(predicted.options)) continue;
        const auto candidate = fitting(predicted.options);
        if (!candidate || candidate->speed < fastest->speed * (1 - tie)) continue;
        if (chosen && !better(*candidate, *chosen)) continue;
        if (holds(evaluator_, candidate->recipe, bed_)) chosen = candidate;
    }
    return chosen;
}

}  // namespace headroom
