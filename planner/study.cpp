// SPDX-License-Identifier: Apache-2.0
#include "planner/study.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

constexpr std::int64_t largest_chunk = 512 * kibi;  ///< FPDT chunks that are tried, in global tokens
constexpr std::int64_t smallest_chunk = 8 * kibi;

/// Contexts that people ask for: 128K, 256K, 512K, then whole millions, further apart when there are many.
std::vector<Tokens> common_contexts(Tokens longest) {
    std::vector<Tokens> contexts;
    for (std::int64_t context = 16 * kibi; context < mebi; context *= 2) contexts.push_back({context});
    const std::int64_t millions = longest.value / mebi + 2;
    std::int64_t step = 1;
    while (millions / step > 10) step *= 2;
    for (std::int64_t count = 1; count <= millions; count += count < 2 * step ? 1 : step) {
        contexts.push_back({count * mebi});
    }
    return contexts;
}

/// What was said for one method alone does not count for the others.
Settings settings_for(Method method, const Settings& said) {
    Settings settings = said;
    if (said.method && *said.method != method) {
        settings.ulysses.reset();
        settings.ring.reset();
        settings.implementation.reset();
    }
    if (method != Method::upipe) settings.heads_per_stage.reset();
    if (method != Method::native) settings.rotation.reset();
    if (method != Method::fpdt) {
        settings.chunk_tokens.reset();
        settings.offload_chunks.reset();
    }
    settings.method = method;
    return settings;
}

class Maker {
 public:
    Maker(const Transformer& model, const Cluster& cluster, const Settings& said,
          const std::function<Settings(Method)>& published, const TimeBasis& basis)
        : said_(said), published_(published), basis_(basis) {
        study_.model = model;
        study_.cluster = cluster;
        study_.calibration = basis.calibration;
    }

    Study make() {
        for (std::size_t i = 0; i < method_names.size(); ++i) search(static_cast<Method>(i));
        if (study_.methods.empty()) refuse();
        choose_focus();
        for (MethodStudy& method : study_.methods) follow(method);
        choose_method();
        study_.stages = stages();
        study_.chunks = chunks();
        add_layer();
        return std::move(study_);
    }

 private:
    Recipe resolved(const Settings& settings) const {
        return resolve(settings, published_(*settings.method), study_.model, study_.cluster);
    }

    void search(Method method) {
        Settings settings = settings_for(method, said_);
        settings.context.reset();
        MethodStudy entry;
        entry.method = method;
        entry.longest = max_context(settings, published_(method), study_.model, study_.cluster, basis_);
        (entry.longest.valid ? study_.methods : study_.refused).push_back(std::move(entry));
        if (said_.method == method && !study_.refused.empty() && study_.refused.back().method == method) refuse();
    }

    [[noreturn]] void refuse() {
        const MethodStudy& last = study_.refused.back();
        Settings settings = settings_for(last.method, said_);
        settings.context = Tokens{2 * std::int64_t{study_.cluster.gpus()} * 64 * kibi};
        resolved(settings);  // throws the rule that is broken, pointing to the setting
        throw Error(last.longest.limited_by, fmt::format("method {}", to_string(last.method)),
                    "headroom show methods says what each method needs");
    }

    void choose_focus() {
        if (said_.context) {
            study_.focus = *said_.context;
            study_.focus_said = true;
            return;
        }
        std::vector<Tokens> reach;
        for (const MethodStudy& method : study_.methods) {
            if (!said_.method || *said_.method == method.method) reach.push_back(method.longest.context);
        }
        std::sort(reach.begin(), reach.end());
        // Half of the methods get there, the others show what stops them.
        const Tokens most = reach[reach.size() / 2].value > 0 ? reach[reach.size() / 2] : reach.back();
        study_.focus = {16 * kibi};
        for (const Tokens context : common_contexts(most)) {
            if (context <= most) study_.focus = context;
        }
    }

    StudyPoint point(const Settings& settings) {
        const Recipe recipe = resolved(settings);
        const Plan plan = make_plan(study_.model, study_.cluster, recipe, basis_);
        StudyPoint result;
        result.context = recipe.context;
        result.need = plan.device.peak + plan.device.unreturnable + plan.device.outside_allocator;
        result.fits = plan.fits;
        result.step = plan.step;
        return result;
    }

    /// The curve of a method: common contexts, its longest one, and one that does not fit.
    void follow(MethodStudy& method) {
        Settings settings = settings_for(method.method, said_);
        const Tokens longest = method.longest.context;
        std::vector<Tokens> contexts;
        bool beyond = false;
        for (const Tokens context : common_contexts(longest)) {
            // Two points below 128K would be enough for nobody: contexts here are long.
            if (context.value < 128 * kibi && longest.value >= 512 * kibi) continue;
            if (context > longest && beyond) break;
            beyond = context > longest;
            contexts.push_back(context);
        }
        contexts.push_back(study_.focus);
        if (longest.value > 0) contexts.push_back(longest);
        std::sort(contexts.begin(), contexts.end());
        contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
        for (const Tokens context : contexts) {
            settings.context = context;
            try {
                if (context <= longest || context.value <= 4 * std::max<std::int64_t>(longest.value, 128 * kibi)) {
                    method.curve.push_back(point(settings));
                    // Shipped code may end before memory does.
                    method.curve.back().fits &= context <= longest;
                }
            } catch (const Error&) {
                continue;  // a context this method cannot split
            }
        }
        // Behind the first that does not fit, nothing is of interest.
        const auto failing = std::find_if(method.curve.begin(), method.curve.end(), [](auto& p) { return !p.fits; });
        if (failing != method.curve.end()) method.curve.erase(failing + 1, method.curve.end());
        settings.context = study_.focus;
        try {
            method.at_focus = make_plan(study_.model, study_.cluster, resolved(settings), basis_);
        } catch (const Error& error) {
            method.refusal = error.what();
            if (study_.focus_said && said_.method == method.method) throw;
        }
    }

    /// The one that was named, else the fastest that fits, else the one that gets furthest.
    void choose_method() {
        study_.method_said = said_.method.has_value();
        double best = -1;
        for (std::size_t i = 0; i < study_.methods.size(); ++i) {
            const MethodStudy& method = study_.methods[i];
            if (said_.method && *said_.method == method.method) {
                study_.chosen = i;
                return;
            }
            if (!method.at_focus) continue;
            // What does not fit counts less than anything that does; without step times the margin decides.
            const DeviceMemory& device = method.at_focus->device;
            const double margin = static_cast<double>((device.usable - device.peak).value) * 1e-15;
            double value = method.at_focus->step ? method.at_focus->step->tokens_per_second_per_gpu : margin;
            if (!method.at_focus->fits) value = margin * 1e-3;
            if (value > best) {
                best = value;
                study_.chosen = i;
            }
        }
    }

    const MethodStudy* find(Method method) const {
        const auto found = std::find_if(study_.methods.begin(), study_.methods.end(),
                                        [&](const MethodStudy& entry) { return entry.method == method; });
        return found == study_.methods.end() || !found->at_focus ? nullptr : &*found;
    }

    std::vector<StudyPoint> stages() {
        std::vector<StudyPoint> points;
        const MethodStudy* upipe = find(Method::upipe);
        if (upipe == nullptr) return points;
        const Recipe& recipe = upipe->at_focus->recipe;
        study_.stage = recipe.heads_per_stage;
        Settings settings = settings_for(Method::upipe, said_);
        settings.context = study_.focus;
        for (const int heads : valid_heads_per_stage(study_.model, recipe.ulysses)) {
            settings.heads_per_stage = heads;
            points.push_back(point(settings));
            points.back().chunk = heads;
        }
        return points;
    }

    std::vector<StudyPoint> chunks() {
        std::vector<StudyPoint> points;
        const MethodStudy* fpdt = find(Method::fpdt);
        if (fpdt == nullptr) return points;
        study_.chunk = fpdt->at_focus->recipe.chunk_tokens.value;
        Settings settings = settings_for(Method::fpdt, said_);
        settings.context = study_.focus;
        for (std::int64_t tokens = smallest_chunk; tokens <= std::min(largest_chunk, study_.focus.value); tokens *= 2) {
            if (study_.focus.value % tokens != 0 || study_.focus.value / tokens > 256) continue;
            settings.chunk_tokens = Tokens{tokens};
            try {
                points.push_back(point(settings));
                points.back().chunk = tokens;
            } catch (const Error&) {
                continue;  // a chunk that the ranks cannot split
            }
        }
        return points;
    }

    void add_layer() {
        const MethodStudy& method = study_.methods[study_.chosen];
        if (!method.at_focus || !method.at_focus->step) return;
        Evaluator evaluator;
        study_.layer = layer_timeline(study_.model, study_.cluster, method.at_focus->recipe,
                                      method.at_focus->step->role, *basis_.calibration, evaluator);
    }

    Study study_;
    const Settings& said_;
    const std::function<Settings(Method)>& published_;
    const TimeBasis& basis_;
};

}  // namespace

Study make_study(const Transformer& model, const Cluster& cluster, const Settings& said,
                 const std::function<Settings(Method)>& published, const TimeBasis& basis) {
    return Maker(model, cluster, said, published, basis).make();
}

}  // namespace headroom
