// SPDX-License-Identifier: Apache-2.0
// User cases of kind c: model configs as people have them. Totals are worked out in config_hf_test.cpp; here each case
// is asked what it asked for.
#include <algorithm>

#include "configs/hf_config.hpp"
#include "models/constraints.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

ModelFile file(const std::string& name) {
    return load_model_file(std::string(HEADROOM_TEST_DATA) + "/hf-configs/" + name + ".json");
}

std::string complaint(const std::string& name) {
    try {
        file(name);
    } catch (const Error& error) {
        return std::string(error.what()) + " | " + error.hint();
    }
    return {};
}

bool any_says(const std::vector<std::string>& sentences, const std::string& part) {
    return std::any_of(sentences.begin(), sentences.end(), [&](const auto& sentence) { return says(sentence, part); });
}

/// Refused for what it is, and counted all the same.
void check_refused(const std::string& name, std::int64_t total, std::int64_t active, const std::string& reason) {
    CAPTURE(name);
    const ModelFile model = file(name);
    CHECK(model.total_parameters == total);
    if (active != 0) CHECK(model.active_parameters == active);
    CHECK(any_says(model.refusals, reason));
}

void check_dense(const std::string& name, std::int64_t total, std::int64_t head_dim) {
    CAPTURE(name);
    const ModelFile model = file(name);
    CHECK(model.refusals.empty());
    CHECK(model.total_parameters == total);
    CHECK(model.transformer.head_dim == head_dim);
}

}  // namespace

USER_CASE("C60", "Llama-3.1 derives head_dim 128") {
    check_dense("Llama-3.1-8B", 8'030'261'248, 128);
    check_dense("Llama-3.1-70B", 70'553'706'496, 128);
    check_dense("Llama-3.1-405B", 405'853'388'800, 128);
}
USER_CASE("C62", "Llama-2 and its pre-release class are MHA") {
    check_dense("Llama-2-7b-hf", 6'738'415'616, 128);
    check_dense("llama-7b.old-class", 6'738'415'616, 128);
    const ModelFile old = file("llama-7b.old-class");
    CHECK(old.transformer.kv_heads == old.transformer.heads);
    CHECK(any_says(old.notes, "LLaMAForCausalLM is read as Llama"));
}
USER_CASE("C63", "Mistral 0.3: null window, and a generation length that is no context") {
    check_dense("Mistral-7B-Instruct-v0.3", 7'248'023'552, 128);
    CHECK(file("Mistral-7B-Instruct-v0.3").transformer.max_positions == 32768);
}
USER_CASE("C64", "phi-4: 40 query and 10 KV heads") {
    check_dense("phi-4", 14'659'507'200, 128);
    CHECK(valid_ulysses_degrees(file("phi-4").transformer) == std::vector<int>{1, 2, 5, 10, 20, 40});
}
USER_CASE("C65", "Qwen2.5 has q, k, v biases and a window that is off") {
    check_dense("Qwen2.5-7B-Instruct", 7'615'616'512, 128);
    // (3584 + 2 * 512) * 28 = 129,024 biases
    Transformer bare = file("Qwen2.5-7B-Instruct").transformer;
    bare.qkv_bias = false;
    CHECK(7'615'616'512 - count_parameters(bare).total() == 129'024);
}
USER_CASE("C66", "Qwen3 0.6B: attention twice as wide as hidden, tied") {
    check_dense("Qwen3-0.6B", 596'049'920, 128);
    check_dense("Qwen3-1.7B", 1'720'574'976, 128);
    CHECK(count_parameters(file("Qwen3-0.6B").transformer).query == 1024 * 2048);
}
USER_CASE("C67", "Qwen3 8B and 32B") {
    check_dense("Qwen3-8B", 8'190'735'360, 128);
    check_dense("Qwen3-32B", 32'762'123'264, 128);
    CHECK(file("Qwen3-32B").transformer.query_width() == 8192);
}
USER_CASE("C68", "Qwen3 mixtures of experts") {
    check_refused("Qwen3-30B-A3B", 30'532'122'624, 3'353'032'704, "128 experts, top 8");
    check_refused("Qwen3-235B-A22B", 235'093'634'560, 22'190'763'520, "128 experts, top 8");
}
USER_CASE("C69", "Mixtral: intermediate_size is the expert's") {
    check_refused("Mixtral-8x7B-v0.1", 46'702'792'704, 12'879'925'248, "8 experts, top 2");
    check_refused("Mixtral-8x22B-v0.1", 140'620'634'112, 39'152'031'744, "8 experts, top 2");
}
USER_CASE("C70", "gpt-oss: biases and sinks counted, windows refused, mxfp4 is storage") {
    check_refused("gpt-oss-20b", 20'914'757'184, 4'187'440'704, "12 of 24 layers use a 128-token sliding window");
    check_refused("gpt-oss-120b", 116'829'156'672, 5'711'982'912, "sliding window");
    CHECK(any_says(file("gpt-oss-20b").notes, "stored quantized (mxfp4)"));
}
USER_CASE("C71", "DeepSeek-V3: latent attention is not 128 KV heads") {
    check_refused("DeepSeek-V3", 671'026'419'200, 37'552'297'472, "latent");
    CHECK(any_says(file("DeepSeek-V3").notes, "multi-token prediction"));
}
USER_CASE("C72", "Kimi K2, plain and nested, are one model") {
    for (const char* name : {"Kimi-K2-Instruct", "Kimi-K2.5"}) {
        check_refused(name, 1'026'408'232'448, 32'861'500'928, "experts");
    }
    CHECK(any_says(file("Kimi-K2.5").notes, "vision tower"));
}
USER_CASE("C74", "DeepSeek-V4-Flash is refused without a guess") {
    const ModelFile model = file("DeepSeek-V4-Flash");
    CHECK_FALSE(model.refusals.empty());
    CHECK(model.total_parameters == 0);  // not counted rather than counted wrongly
}
USER_CASE("C76", "Llama 4: nested, interleaved experts, chunked attention") {
    check_refused("Llama-4-Scout-17B-16E-Instruct", 107'769'861'120, 17'172'894'720, "16 experts");
    check_refused("Llama-4-Maverick-17B-128E-Instruct", 400'711'848'960, 17'184'691'200, "128 experts");
    CHECK(any_says(file("Llama-4-Scout-17B-16E-Instruct").refusals, "chunk"));
    const Transformer heads = model_of("{base: llama3-8b, heads: 40, kv_heads: 8}");
    const std::vector<int> degrees = valid_ulysses_degrees(heads);
    CHECK(std::find(degrees.begin(), degrees.end(), 16) == degrees.end());
}
USER_CASE("C77", "Llama-3.2-Vision: cross-attention layers are not self-attention") {
    const ModelFile model = file("Llama-3.2-90B-Vision-Instruct");
    CHECK(any_says(model.refusals, "cross-attention"));
    CHECK(any_says(model.notes, "approximately 87666794496"));
    CHECK_FALSE(any_says(model.notes, "tied"));
}
USER_CASE("C82", "Gemma 3 is tied though the flag is absent") {
    check_refused("gemma-3-12b-it-text-only", 11'766'034'176, 0, "40 of 48 layers");
    check_refused("gemma-3-4b-text-only", 3'880'263'168, 0, "29 of 34 layers");
}
USER_CASE("C83", "Gemma 1: head_dim 256, MQA, 8.5e9 parameters in the 7b") {
    check_dense("gemma-2b-it", 2'506'172'416, 256);
    check_dense("gemma-7b-it", 8'537'680'896, 256);
    CHECK(file("gemma-7b-it").transformer.query_width() == 4096);
    CHECK(valid_ulysses_degrees(file("gemma-2b-it").transformer) == std::vector<int>{1, 2, 4, 8});
}
USER_CASE("C85", "gemma-4: two head sizes are refused, nested rope and null audio are no crash") {
    CHECK_FALSE(file("gemma-4-26B-A4B").refusals.empty());
    // Both head sets have to obey the rule: 16 query heads with 8 and with 2 KV heads.
    CHECK(valid_ulysses_degrees(model_of("{base: llama3-8b, heads: 16, kv_heads: 2}")) ==
          std::vector<int>{1, 2, 4, 8, 16});
}
USER_CASE("C86", "Falcon: multi_query wins over num_kv_heads 71") {
    for (const char* name : {"falcon-7b", "falcon-7b.legacy-names"}) {
        CHECK(file(name).total_parameters == 6'921'720'704);
        CHECK(any_says(file(name).notes, "share one KV head"));
    }
    CHECK(file("falcon-40b-instruct.legacy-names").total_parameters == 41'303'293'952);
}
USER_CASE("C89", "Nemotron: null heads and per-block shapes") {
    const ModelFile model = file("Llama-3_3-Nemotron-Super-49B-v1");
    CHECK(model.total_parameters == 49'867'145'216);
    CHECK_FALSE(model.refusals.empty());
}
USER_CASE("C91", "OLMo 3: full-width norms and 48 windowed layers of 64") {
    check_refused("Olmo-3.1-32B-Instruct", 32'233'522'176, 0, "48 of 64 layers use a 4096-token sliding window");
}
USER_CASE("C93", "MiniMax-M2.5: the intermediate size is the expert's") {
    const ModelFile model = file("MiniMax-M2.5");
    // Experts alone: 62 layers * 256 * 3 * 3072 * 1536 = 224.7e9
    CHECK(model.total_parameters > std::int64_t{62} * 256 * 3 * 3072 * 1536);
    CHECK(any_says(model.refusals, "256 experts"));
}
USER_CASE("C94", "Step-3.7-Flash: optional fields may be absent") {
    CHECK(complaint("Step-3.7-Flash").empty());
    CHECK(any_says(file("Step-3.7-Flash").refusals, "33 of 45 layers"));
}
USER_CASE("C95", "DeepSeek 16B: every missing field at once, and native names") {
    CHECK(says(complaint("DeepSeek-Coder-V2-Lite-Base.partial"), "missing vocab_size, v_head_dim"));
    CHECK(says(complaint("deepseek-16B.native-names"), "not a Hugging Face config"));
    CHECK(says(complaint("deepseek-16B.native-names"), "dim -> hidden_size"));
}
USER_CASE("C96", "more KV heads than query heads") {
    CHECK(says(complaint("Llama-200M.invalid-kv"), "kv heads (32) exceed q heads (4)"));
}
USER_CASE("C98", "values under the wrong keys") {
    const std::string text = complaint("malformed-types");
    CHECK(says(text, "vocab_size must be a whole number, not 'true'"));
    CHECK(says(text, "hidden_size 16384 is not divisible by num_attention_heads 126"));
}
USER_CASE("C99", "readers that guessed: no silent defaults, nested text models, multi_query") {
    const auto refusal = [](const std::string& json) -> std::string {
        try {
            import_hf_config(parse_yaml(json, "config.json"), "m", "test");
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    };
    CHECK(says(refusal(R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096})"), "missing "));
    const std::string text = R"({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})";
    for (const char* nest : {"text_config", "language_config", "llm_config"}) {
        CAPTURE(nest);
        const std::string nested = std::string("{\"hidden_size\": 7, \"") + nest + "\": " + text + "}";
        CHECK(import_hf_config(parse_yaml(nested, "config.json"), "m", "test").transformer.hidden == 64);
    }
    // GPT-BigCode's multi_query means one KV head of 16.
    CHECK(any_says(file("falcon-7b").notes, "multi_query"));
}

}  // namespace headroom
