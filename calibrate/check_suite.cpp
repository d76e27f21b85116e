// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check_suite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "calibrate/check_parts.hpp"
#include "calibrate/step_check.hpp"

namespace headroom {
namespace {

using Cases = std::vector<CheckCase> (*)(int, const TransformerShape&, std::int64_t, std::int64_t);

std::vector<CheckCase> cases_at(const std::vector<int>& ranks, Cases cases, const TransformerShape& model,
                                std::int64_t context, std::int64_t element) {
    std::vector<CheckCase> all;
    for (const int count : ranks) {
        for (CheckCase& one : cases(count, model, context, element)) all.push_back(std::move(one));
    }
    return all;
}

/// Makes a reference when it is first asked for.
template <class Reference>
auto lazily(const TransformerShape& model, std::int64_t context) {
    return [model, context, made = std::shared_ptr<const Reference>()]() mutable -> const Reference& {
        if (!made) made = std::make_shared<const Reference>(model, context);
        return *made;
    };
}

struct AttentionResult {
    const char *name, *key;
    double CheckErrors::*error;
};
constexpr std::array<AttentionResult, 8> all_attention_results{
    {{"output", "output", &CheckErrors::output},
     {"dx", "input_gradient", &CheckErrors::input_gradient},
     {"dWq", "query_weight_gradient", &CheckErrors::query_weight},
     {"dWk", "key_weight_gradient", &CheckErrors::key_weight},
     {"dWv", "value_weight_gradient", &CheckErrors::value_weight},
     {"dWo", "output_weight_gradient", &CheckErrors::output_weight},
     {"dNq", "query_norm_gradient", &CheckErrors::query_norm},
     {"dNk", "key_norm_gradient", &CheckErrors::key_norm}}};
std::span<const AttentionResult> attention_results(const TransformerShape& model) {
    return std::span(all_attention_results).first(model.qk_norm == QkNorm::none ? 6 : 8);
}

CheckedCase checked(const CheckErrors& errors, const TransformerShape& model) {
    CheckedCase result;
    for (const AttentionResult& one : attention_results(model)) {
        result.results.push_back({one.name, one.key, errors.*one.error});
    }
    result.peak_bytes = errors.peak_bytes;
    return result;
}

CheckedCase checked(const StepErrors& errors) {
    CheckedCase result;
    for (const NamedError& one : errors.named()) {
        std::string key = one.name;
        std::replace(key.begin(), key.end(), ' ', '_');
        result.results.push_back({one.name, key, one.error});
    }
    result.peak_bytes = errors.peak_bytes;
    return result;
}

/// The largest error of the results that `belongs` names.
template <class Belongs>
CheckSuite::Column column(const std::string& heading, Belongs belongs) {
    return {heading, [belongs](const CheckedCase& one) {
                std::vector<double> errors;
                for (const CheckedResult& result : one.results) {
                    if (belongs(result.name)) errors.push_back(result.error);
                }
                return largest_error(errors);
            }};
}

CheckSuite::Column column(const std::string& name) {
    return column(name, [name](const std::string& result) { return result == name; });
}

const char* with_qk_norm(const TransformerShape& model) { return model.qk_norm == QkNorm::none ? "" : " with QK norm"; }

CheckSuite attention_suite(const CheckMachine& machine, const TransformerShape& model, const std::vector<int>& ranks) {
    CheckSuite suite;
    suite.title = fmt::format(
        "Relative error against attention over {} tokens in double precision, {} heads on {} KV heads of {}{}",
        machine.context, model.heads, model.kv_heads, model.head_dim, with_qk_norm(model));
    suite.subject = "attention and its gradients";
    suite.key = "attention";
    for (const AttentionResult& one : attention_results(model)) suite.columns.push_back(column(one.name));
    suite.cases = cases_at(ranks, check_cases, model, machine.context, machine.element);
    suite.alone = check_cases(1, model, machine.context, machine.element).front();
    suite.run = [reference = lazily<CheckReference>(model, machine.context)](
                    const CheckCase& which, const DeviceFactory& device, const std::function<void()>& give_up) mutable {
        return checked(check(which, reference(), device, give_up), which.work.model);
    };
    return suite;
}

CheckSuite step_suite(const CheckMachine& machine, const TransformerShape& model, const std::vector<int>& ranks) {
    CheckSuite suite;
    suite.title = fmt::format(
        "Relative error against a training step of {} blocks{}{} over {} tokens in double precision; dW is the worst "
        "kind of weight",
        model.layers, with_qk_norm(model), model.tied_embeddings ? " and tied embeddings" : "", machine.step_context);
    suite.subject = "the loss, the gradients and the update of a training step";
    suite.key = "training step";
    suite.columns = {column("loss"),
                     column("dW", [](const std::string& result) { return result.starts_with("gradient of "); }),
                     column("update"), column("moments")};
    suite.cases = cases_at(ranks, step_cases, model, machine.step_context, machine.element);
    suite.alone = step_cases(1, model, machine.step_context, machine.element).front();
    suite.run = [reference = lazily<StepReference>(model, machine.step_context)](
                    const CheckCase& which, const DeviceFactory& device, const std::function<void()>& give_up) mutable {
        return checked(check_step(which, reference(), device, give_up));
    };
    return suite;
}

}  // namespace

std::vector<CheckSuite> check_suites(const CheckMachine& machine, const std::vector<int>& ranks) {
    TransformerShape model = machine.model;
    TransformerShape step_model = machine.step_model;
    std::vector<CheckSuite> suites{attention_suite(machine, model, ranks)};
    model.qk_norm = QkNorm::per_head;
    suites.push_back(attention_suite(machine, model, ranks));
    suites.push_back(step_suite(machine, step_model, ranks));
    step_model.qk_norm = QkNorm::per_head;
    step_model.tied_embeddings = true;
    suites.push_back(step_suite(machine, step_model, ranks));
    return suites;
}

}  // namespace headroom
