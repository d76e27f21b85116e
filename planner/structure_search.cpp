// SPDX-License-Identifier: Apache-2.0
#include "planner/structure_search.hpp"

#include <algorithm>
#include <cmath>

#include "models/states.hpp"
#include "planner/outside.hpp"

namespace headroom {
namespace {

/// What single changes may be wrong by when they are added up: a share of the changes, for what hides under what, and
/// of the step, for rounding. Tests compare with every candidate evaluated.
constexpr double slack_of_changes = 0.1;
constexpr double slack_of_step = 1e-5;

Bytes share(Bytes bytes, double part) {
    return {static_cast<std::int64_t>(static_cast<double>(bytes.value) * part)};
}

/// States that this choice keeps on the device although it could have them on the host.
Bytes movable_states(const Workload& work, const StateChoice& choice) {
    const StateBytes bytes = state_bytes(work);
    Bytes kept;
    if (!choice.optimizer_on_host) kept += bytes.optimizer + bytes.gradients;
    if (!choice.parameters_on_host) kept += bytes.parameters;
    return kept;
}

template <class Visit>
void for_each_key(const Structure& structure, std::size_t placement, Visit visit) {
    // Backwards, as the lists lead from fat to lean.
    Options options;
    options.placement = static_cast<std::uint8_t>(placement);
    for (std::size_t chunks = structure.chunks_on_host.size(); chunks-- > 0;) {
        for (std::size_t norm = structure.norm.size(); norm-- > 0;) {
            for (std::size_t mlp = structure.mlp.size(); mlp-- > 0;) {
                for (std::size_t loss = structure.loss.size(); loss-- > 0;) {
                    options.chunks = static_cast<std::uint8_t>(chunks);
                    options.norm = static_cast<std::uint8_t>(norm);
                    options.mlp = static_cast<std::uint8_t>(mlp);
                    options.loss = static_cast<std::uint8_t>(loss);
                    if (!visit(options)) return;
                }
            }
        }
    }
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

Candidate StructureSearch::evaluated(const Options& options) {
    Candidate candidate = evaluate(evaluator_, structure_.recipe(options), bed_);
    candidate.family = structure_.family;
    candidate.structure = number_;
    candidate.index = index_of(options);
    return candidate;
}

std::optional<Candidate> StructureSearch::exhaustive() {
    std::vector<Candidate> fitting;
    for (std::int64_t i = 0; i < structure_.size(); ++i) {
        const Candidate candidate = evaluated(structure_.options(i));
        ++counts_.evaluated;
        if (!fits(candidate.evaluation.memory, candidate.recipe, bed_)) continue;
        ++counts_.fitting;
        fitting.push_back(candidate);
    }
    something_fits_ = !fitting.empty();
    std::sort(fitting.begin(), fitting.end(), better);
    const auto found = std::find_if(fitting.begin(), fitting.end(), [&](const Candidate& candidate) {
        return holds(evaluator_, candidate.recipe, bed_);
    });
    return found == fitting.end() ? std::nullopt : std::optional(*found);
}

void StructureSearch::memory_survivors(Options options, std::vector<Survivor>& list) {
    const auto& states = structure_.states;
    const Bytes device = device_limit(bed_, structure_.base);
    const Bytes host = host_limit(bed_);
    std::vector<bool> seen(states.size());
    for (std::size_t first = 0; first < states.size(); ++first) {
        if (seen[first]) continue;
        // The one of this strategy that keeps least on the device stands for all of them.
        std::size_t lean = first;
        std::vector<Bytes> kept(states.size());
        for (std::size_t i = first; i < states.size(); ++i) {
            if (states[i].strategy != states[first].strategy) continue;
            seen[i] = true;
            options.states = static_cast<std::uint8_t>(i);
            kept[i] = movable_states(make_workload(bed_.model, bed_.cluster, structure_.recipe(options)), states[i]);
            if (kept[i] < kept[lean] || i == first) lean = i;
        }
        options.states = static_cast<std::uint8_t>(lean);
        const Verdict verdict = evaluator_.verdict(bed_.model, bed_.cluster, structure_.recipe(options));
        for (std::size_t i = first; i < states.size(); ++i) {
            if (states[i].strategy != states[first].strategy) continue;
            const Bytes moved = kept[i] - kept[lean];
            if (verdict.device_peak + moved > device) continue;
            if (verdict.host_peak_per_node - moved * bed_.cluster.gpus_per_node > host) continue;
            options.states = static_cast<std::uint8_t>(i);
            list.push_back({options, 0});
        }
    }
}

std::vector<StructureSearch::Survivor> StructureSearch::survivors(Checkpointing checkpointing) {
    std::vector<Survivor> list;
    for (std::size_t place = 0; place < structure_.placements.size(); ++place) {
        if (structure_.placements[place].checkpointing != checkpointing) continue;
        for_each_key(structure_, place, [&](const Options& options) {
            memory_survivors(options, list);
            return true;
        });
    }
    return list;
}

bool StructureSearch::any_fits() {
    bool found = false;
    for (std::size_t place = structure_.placements.size(); place-- > 0 && !found;) {
        for_each_key(structure_, place, [&](const Options& options) {
            std::vector<Survivor> list;
            memory_survivors(options, list);
            for (const Survivor& survivor : list) {
                const Recipe recipe = structure_.recipe(survivor.options);
                found = found || fits(evaluator_.verdict(bed_.model, bed_.cluster, recipe), recipe, bed_);
            }
            return !found;
        });
    }
    return found;
}

/// Gives every survivor its predicted least time. False when none can be as fast as the threshold.
bool StructureSearch::predict(std::vector<Survivor>& list, double threshold) {
    const Options reference = list.front().options;
    const Candidate at_reference = evaluated(reference);
    const StepTime& step = at_reference.evaluation.step;
    // Attention runs on the compute stream and is the same for all options: no step is shorter.
    const Seconds attention = step.parts[static_cast<std::size_t>(Part::attention)].busy;
    if (attention.value > 0 && tokens_per_second_per_gpu(at_reference.recipe, attention) < threshold) return false;

    constexpr double unknown = -1e30;
    std::array<std::array<double, 16>, std::size(axes)> change{};
    for (auto& axis : change) axis.fill(unknown);
    for (Survivor& survivor : list) {
        double changes = 0;
        double sum = step.seconds.value;
        for (std::size_t axis = 0; axis < std::size(axes); ++axis) {
            const std::uint8_t value = survivor.options.*axes[axis];
            double& known = change[axis][value];
            if (known == unknown) {
                Options changed = reference;
                changed.*axes[axis] = value;
                known = changed == reference
                            ? 0
                            : (evaluated(changed).evaluation.step.seconds - step.seconds).value;
            }
            sum += known;
            changes += std::abs(known);
        }
        survivor.predicted = sum - slack_of_changes * changes - slack_of_step * step.seconds.value;
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Survivor& a, const Survivor& b) { return a.predicted < b.predicted; });
    return true;
}

std::optional<Candidate> StructureSearch::pruned(double threshold) {
    std::optional<Candidate> best;
    for (const Checkpointing checkpointing : {Checkpointing::none, Checkpointing::full}) {
        std::vector<Survivor> list = survivors(checkpointing);
        something_fits_ = something_fits_ || !list.empty();
        if (list.empty() || !predict(list, threshold)) continue;
        for (const Survivor& survivor : list) {
            const double at_most =
                survivor.predicted > 0 ? tokens_per_second_per_gpu(structure_.base, Seconds{survivor.predicted}) : 1e30;
            if (at_most < threshold) break;
            const Candidate candidate = evaluated(survivor.options);
            ++counts_.evaluated;
            if (!fits(candidate.evaluation.memory, candidate.recipe, bed_)) continue;
            ++counts_.fitting;
            if (candidate.speed < threshold || (best && !better(candidate, *best))) continue;
            if (!holds(evaluator_, candidate.recipe, bed_)) continue;
            best = candidate;
            threshold = std::max(threshold, candidate.speed);
        }
    }
    return best;
}

}  // namespace headroom
