// SPDX-License-Identifier: Apache-2.0
// Which recipe to run: for a context, the fastest that fits with a margin; or the one that reaches furthest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/explain.hpp"
#include "planner/plan.hpp"

namespace headroom {

struct Recommendation {
    Candidate candidate;
    Plan plan;
    Recipe plain;                             ///< what `headroom plan` takes for method, code and degrees alone
    Recipe published;                         ///< what its authors run at this context and these degrees
    std::optional<Alternative> as_published;  ///< absent when it is the published recipe
    std::optional<Alternative> next;          ///< the one ranked below, against this one
    std::vector<Alternative> turned;
    std::optional<Curve> curve;
};

/// A recipe that does not fit or that the shipped code does not run, and the least that would make it fit.
struct NearMiss {
    Candidate candidate;
    std::string beyond_shipped_code;
    Bytes device_short, host_short;
    double faster_by = 0;          ///< than the first recommendation; 0 when there is none
    Tokens fits_up_to;             ///< longest context of exactly this recipe; 0 when there is none
    std::vector<Difference> turn;  ///< one option that makes it fit at this context; empty when none does
    double turn_costs = 0;         ///< share of its speed
};

struct FrontPoint {
    Tokens context;
    Candidate candidate;
};

struct Recommendations {
    Transformer model;
    Cluster cluster;
    std::vector<std::string> bench_flags;  ///< of the question
    Margin margin;
    Tokens context;        ///< asked for, or the longest found
    bool longest = false;  ///< the context is the answer
    bool exhaustive = false;
    Tokens asked_step;
    Tokens step;  ///< contexts that were tried are multiples of it: of the one asked for and of what recipes divide by
    double tie = 0;
    std::vector<Recommendation> list;
    std::vector<NearMiss> near_misses;
    int fits_on_nodes = 0;          ///< when nothing fits: doublings of the nodes until something does; 0 = none tried
    std::vector<FrontPoint> front;  ///< longest context last, each slower than the one before it
    std::int64_t considered = 0, evaluated = 0, feasible = 0;
    std::string_view not_searched;  ///< what could be, and why it is not; empty when all is
    std::optional<Error> refusal;   ///< why, when no candidate is valid at all
};

struct Question {
    Settings said;                ///< without a context: the longest
    std::vector<Method> methods;  ///< to search; empty: all, or the one in `said`
    PublishedRecipes published;
    Transformer model;
    Cluster cluster;
    TimeBasis basis;  ///< with a calibration
    Margin margin;
    SearchOptions search;
    Tokens step{128 * kibi};  ///< granularity of the longest context
    bool front = false;
    std::vector<std::string> bench_flags;  ///< that name model, machine and constants: "--model ./my-model"
};

Recommendations recommend(const Question& question);

}  // namespace headroom
