// SPDX-License-Identifier: Apache-2.0
// The search against brute force: the same recipes, with a fraction of the work, and never beyond the margin.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "models/constraints.hpp"
#include "models/error.hpp"
#include "planner/explain.hpp"
#include "planner/recommend.hpp"
#include "planner/setting_values.hpp"
#include "planner/structure_search.hpp"

namespace headroom {

namespace {

struct Desk {
    Transformer model;
    Cluster cluster;
    Calibration calibration;
    PublishedRecipes published;
    Settings said;

    Desk(const char* name, int nodes, std::int64_t context) : model(load_model(name)) {
        cluster = load_cluster("h100-sxm-80gb");
        cluster.nodes = nodes;
        calibration = calibration_for(cluster);
        for (std::size_t i = 0; i < published.size(); ++i) published[i] = published_recipe(static_cast<Method>(i));
        said.context = Tokens{context};
    }
    Bed bed(Margin margin = {}) const { return {model, cluster, calibration, margin}; }
    SearchSpace space() const { return search_space(said, published, model, cluster); }
    Question question() const {
        Question question;
        question.said = said;
        question.published = published;
        question.model = model;
        question.cluster = cluster;
        question.basis.calibration = calibration;
        return question;
    }
};

SearchOptions everything() {
    SearchOptions options;
    options.exhaustive = true;
    return options;
}

void check_same(const Ranking& pruned, const Ranking& exhaustive) {
    REQUIRE(pruned.best.size() == exhaustive.best.size());
    for (std::size_t i = 0; i < pruned.best.size(); ++i) {
        CAPTURE(i);
        CHECK(pruned.best[i].recipe == exhaustive.best[i].recipe);
        CHECK(pruned.best[i].speed == exhaustive.best[i].speed);
    }
}

}  // namespace

TEST_CASE("pruning finds what brute force finds, at every length and for every method") {
    for (const Method method : {Method::native, Method::ring, Method::ulysses, Method::usp, Method::upipe}) {
        for (const std::int64_t context : {64 * kibi, 512 * kibi, 2 * mebi, 3 * mebi, 4 * mebi}) {
            CAPTURE(to_string(method));
            CAPTURE(context);
            Desk desk("llama3-8b", 1, context);
            desk.said.method = method;
            const SearchSpace space = desk.space();
            const Ranking exhaustive = search(space, desk.bed(), everything());
            const Ranking pruned = search(space, desk.bed());
            CHECK(exhaustive.evaluated == space.size());
            CHECK(pruned.considered == space.size());
            check_same(pruned, exhaustive);
            if (context >= mebi) CHECK(pruned.evaluated * 4 < exhaustive.evaluated);
        }
    }
}

TEST_CASE("pruning finds what brute force finds for FPDT, for lean code and for several nodes") {
    Desk fpdt("llama3-8b", 1, mebi);
    fpdt.said.method = Method::fpdt;
    fpdt.said.ulysses = 8;
    fpdt.said.batch = 1;
    check_same(search(fpdt.space(), fpdt.bed()), search(fpdt.space(), fpdt.bed(), everything()));

    Desk lean("qwen3-8b", 1, 2 * mebi);
    lean.said.implementation = Implementation::lean;
    lean.said.method = Method::upipe;
    lean.said.batch = 1;
    lean.said.tiling_loss = Tiling{Tiling::Kind::automatic, 0};
    check_same(search(lean.space(), lean.bed()), search(lean.space(), lean.bed(), everything()));

    Desk nodes("llama3-70b", 4, mebi);
    nodes.said.method = Method::usp;
    nodes.said.batch = 1;
    nodes.said.tiling_loss = Tiling{Tiling::Kind::automatic, 0};
    check_same(search(nodes.space(), nodes.bed()), search(nodes.space(), nodes.bed(), everything()));
}

TEST_CASE("without ties the answer is the fastest of all that fit") {
    Desk desk("llama3-8b", 1, 2 * mebi);
    desk.said.method = Method::upipe;
    SearchOptions options;
    options.tie = 0;
    options.families = 1;
    const Ranking pruned = search(desk.space(), desk.bed(), options);
    REQUIRE(pruned.best.size() == 1);
    Evaluator evaluator;
    double fastest = 0;
    for (const Structure& structure : desk.space().structures) {
        for (std::int64_t i = 0; i < structure.size(); ++i) {
            const Candidate candidate = evaluate(evaluator, structure.recipe(structure.options(i)), desk.bed());
            if (fits(candidate.evaluation.memory, candidate.recipe, desk.bed()) && candidate.speed > fastest &&
                holds(evaluator, candidate.recipe, desk.bed())) {
                fastest = candidate.speed;
            }
        }
    }
    CHECK(pruned.best.front().speed == fastest);
}

TEST_CASE("every candidate is valid, and counted once") {
    Desk desk("llama3-8b", 1, mebi);
    desk.said.batch = 1;
    std::set<std::vector<std::string>> seen;
    std::int64_t count = 0;
    for (const Structure& structure : desk.space().structures) {
        for (std::int64_t i = 0; i < structure.size(); ++i) {
            const Recipe recipe = structure.recipe(structure.options(i));
            CHECK_NOTHROW(check(recipe, desk.model, desk.cluster));
            std::vector<std::string> settings;
            for (const NamedSetting& setting : setting_values(recipe)) settings.push_back(to_string(setting.value));
            seen.insert(settings);
            ++count;
        }
    }
    CHECK(count == desk.space().size());
    CHECK(static_cast<std::int64_t>(seen.size()) == count);
}

TEST_CASE("the margin is kept, and a larger one never makes the answer faster") {
    double before = 1e30;
    for (const double margin : {0.0, 0.02, 0.1, 0.3}) {
        Desk desk("llama3-8b", 1, 2 * mebi);
        desk.said.batch = 1;
        SearchOptions options;
        options.tie = 0;
        const Ranking ranking = search(desk.space(), desk.bed({margin, 0.05}), options);
        REQUIRE(!ranking.best.empty());
        for (const Candidate& candidate : ranking.best) {
            const Plan plan = make_plan(desk.model, desk.cluster, candidate.recipe);
            CHECK(plan.fits);
            const auto need = static_cast<double>((plan.device.peak + plan.device.unreturnable).value);
            CHECK(need <= (1 - margin) * static_cast<double>(plan.device.usable.value));
            CHECK(static_cast<double>(plan.host.peak_per_node.value) <=
                  0.95 * static_cast<double>(plan.host.usable_per_node.value));
        }
        CHECK(ranking.best.front().speed <= before);
        before = ranking.best.front().speed;
    }
}

TEST_CASE("of equals the recipe nearest to the published one is chosen") {
    std::vector<Candidate> candidates(3);
    candidates[0].speed = 100;
    candidates[0].departures = 3;
    candidates[1].speed = 99.8;
    candidates[1].departures = 1;
    candidates[2].speed = 99;
    CHECK(choose(candidates, 0.005) == &candidates[1]);
    CHECK(choose(candidates, 0) == candidates.data());
    CHECK(choose(candidates, 0.02) == &candidates[2]);
    CHECK(choose({}, 0.02) == nullptr);
    // Equally many settings: the nearer chunk, then the faster.
    std::vector<Candidate> chunks(3);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        chunks[i].departures = 1;
        chunks[i].speed = 100 - 0.1 * static_cast<double>(i);
        chunks[i].chunk_steps = i == 0 ? 4 : 3;
    }
    CHECK(choose(chunks, 0.005) == &chunks[1]);
    Recipe published, chosen;
    published.chunk_tokens = Tokens{64 * kibi};
    chosen.chunk_tokens = Tokens{512 * kibi};
    CHECK(chunk_steps(chosen, published) == 3);
    CHECK(chunk_steps(published, chosen) == 3);
    CHECK(chunk_steps({}, {}) == 0);
}

TEST_CASE("the longest context is the last step at which any recipe fits") {
    Desk desk("llama3-8b", 1, mebi);
    desk.said.method = Method::upipe;
    desk.said.ulysses = 8;
    desk.said.ring = 1;
    Question question = desk.question();
    question.said.context.reset();
    question.step = Tokens{512 * kibi};
    const Recommendations answer = recommend(question);
    REQUIRE(!answer.list.empty());
    std::int64_t last = 0;
    for (std::int64_t steps = 1; steps <= 16; ++steps) {
        Desk at = desk;
        at.said.context = question.step * steps;
        if (!search(at.space(), at.bed(), everything()).best.empty()) last = steps;
    }
    CHECK(answer.context == question.step * last);
}

TEST_CASE("what is turned changes what it says, and the curve marks the chosen point") {
    Desk desk("llama3-8b", 1, 3 * mebi);
    desk.said.method = Method::upipe;
    desk.said.ulysses = 8;
    const Recommendations answer = recommend(desk.question());
    REQUIRE(!answer.list.empty());
    const Recommendation& first = answer.list.front();
    CHECK(!first.turned.empty());
    for (const Alternative& turn : first.turned) {
        REQUIRE(!turn.changed.empty());
        const Plan plan = make_plan(desk.model, desk.cluster, turn.candidate.recipe);
        CHECK(turn.peak_change == plan.device.peak - first.plan.device.peak);
        CHECK(turn.peak_share == doctest::Approx(in_gib(turn.peak_change) / in_gib(first.plan.device.peak)));
        if (turn.fits) CHECK(turn.candidate.speed * (1 - answer.tie) <= first.candidate.speed);
    }
    REQUIRE(first.curve.has_value());
    const auto& points = first.curve->points;
    CHECK(points.size() == 3);  // 8, 16 and 32 of 32 heads
    CHECK(std::count_if(points.begin(), points.end(), [](const Curve::Point& p) { return p.chosen; }) == 1);
    for (std::size_t i = 1; i < points.size(); ++i) {
        CHECK(points[i].candidate.evaluation.memory.device_peak >
              points[i - 1].candidate.evaluation.memory.device_peak);
    }
}

}  // namespace headroom
