// SPDX-License-Identifier: Apache-2.0
// Claim: a Hugging Face config is read exactly, or refused by name; never a silent wrong count.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "configs/hf_config.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "models/error.hpp"

using namespace headroom;

namespace {

ModelFile load(const std::string& file) {
    return load_model_file(std::string(HEADROOM_TEST_DATA) + "/hf-configs/" + file + ".json");
}

ModelFile import(const std::string& text) { return import_hf_config(parse_yaml(text, "config.json"), "m", "test"); }

bool any_contains(const std::vector<std::string>& sentences, const std::string& part) {
    return std::any_of(sentences.begin(), sentences.end(),
                       [&](const std::string& sentence) { return sentence.find(part) != std::string::npos; });
}

struct Dense {
    const char* file;
    std::int64_t total;
    std::int64_t layers, hidden, heads, kv_heads, head_dim, max_positions;
};

struct Refused {
    const char* file;
    std::int64_t total, active;
    std::vector<const char*> refusals;
};

/// A Llama of one layer; `extra` comes first, so that it can add or replace nothing but itself.
std::string tiny(const std::string& extra) {
    return "{" + extra + (extra.empty() ? "" : ", ") +
           R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "vocab_size": 100})";
}
// One block: attention 64*64*2 + 2*64*32 = 12,288; MLP 3*64*128 = 24,576; norms 128. Root: 2*6,400 + 64.
constexpr std::int64_t tiny_total = 4 * (12'288 + 24'576 + 128) + 12'864;

}  // namespace

TEST_CASE("dense decoders are exact to the parameter") {
    const std::vector<Dense> table{
        {"Llama-3.1-8B", 8'030'261'248, 32, 4096, 32, 8, 128, 131072},
        {"Llama-3.1-70B", 70'553'706'496, 80, 8192, 64, 8, 128, 131072},
        {"Llama-3.1-405B", 405'853'388'800, 126, 16384, 128, 8, 128, 131072},
        {"Llama-2-7b-hf", 6'738'415'616, 32, 4096, 32, 32, 128, 4096},
        {"llama-7b.old-class", 6'738'415'616, 32, 4096, 32, 32, 128, 2048},
        {"Mistral-7B-Instruct-v0.3", 7'248'023'552, 32, 4096, 32, 8, 128, 32768},
        {"phi-4", 14'659'507'200, 40, 5120, 40, 10, 128, 16384},
        {"Qwen2.5-7B-Instruct", 7'615'616'512, 28, 3584, 28, 4, 128, 32768},
        {"Qwen3-0.6B", 596'049'920, 28, 1024, 16, 8, 128, 40960},
        {"Qwen3-1.7B", 1'720'574'976, 28, 2048, 16, 8, 128, 40960},
        {"Qwen3-8B", 8'190'735'360, 36, 4096, 32, 8, 128, 40960},
        {"Qwen3-32B", 32'762'123'264, 64, 5120, 64, 8, 128, 40960},
        {"gemma-2b-it", 2'506'172'416, 18, 2048, 8, 1, 256, 8192},
        {"gemma-7b-it", 8'537'680'896, 28, 3072, 16, 16, 256, 8192},
    };
    for (const Dense& row : table) {
        CAPTURE(row.file);
        const ModelFile model = load(row.file);
        CHECK(model.refusals.empty());
        CHECK(model.total_parameters == row.total);
        CHECK(model.active_parameters == row.total);
        CHECK(count_parameters(model.transformer).total() == row.total);
        CHECK(model.transformer.layers == row.layers);
        CHECK(model.transformer.hidden == row.hidden);
        CHECK(model.transformer.heads == row.heads);
        CHECK(model.transformer.kv_heads == row.kv_heads);
        CHECK(model.transformer.head_dim == row.head_dim);
        CHECK(model.transformer.max_positions == row.max_positions);
    }
}

TEST_CASE("what cannot be planned is refused by name, and counted where the structure is known") {
    const std::vector<Refused> table{
        {"Qwen3-30B-A3B", 30'532'122'624, 3'353'032'704, {"mixture of experts: 128 experts, top 8"}},
        {"Qwen3-235B-A22B", 235'093'634'560, 22'190'763'520, {"mixture of experts: 128 experts, top 8"}},
        {"Mixtral-8x7B-v0.1", 46'702'792'704, 12'879'925'248, {"mixture of experts: 8 experts, top 2"}},
        {"Mixtral-8x22B-v0.1", 140'620'634'112, 39'152'031'744, {"mixture of experts: 8 experts, top 2"}},
        {"gpt-oss-20b",
         20'914'757'184,
         4'187'440'704,
         {"mixture of experts: 32 experts, top 4", "12 of 24 layers use a 128-token sliding window",
          "attention sinks"}},
        {"gpt-oss-120b",
         116'829'156'672,
         5'711'982'912,
         {"mixture of experts: 128 experts, top 4", "18 of 36 layers use a 128-token sliding window"}},
        {"DeepSeek-V3",
         671'026'419'200,
         37'552'297'472,
         {"mixture of experts: 256 experts, top 8", "multi-head latent attention (kv_lora_rank 512)"}},
        {"Kimi-K2-Instruct",
         1'026'408'232'448,
         32'861'500'928,
         {"mixture of experts: 384 experts, top 8", "multi-head latent attention (kv_lora_rank 512)"}},
        {"Kimi-K2.5", 1'026'408'232'448, 32'861'500'928, {"multi-head latent attention (kv_lora_rank 512)"}},
        {"Llama-4-Scout-17B-16E-Instruct",
         107'769'861'120,
         17'172'894'720,
         {"mixture of experts: 16 experts, top 1", "36 of 48 layers use 8192-token attention chunks"}},
        {"Llama-4-Maverick-17B-128E-Instruct",
         400'711'848'960,
         17'184'691'200,
         {"mixture of experts: 128 experts, top 1", "36 of 48 layers use 8192-token attention chunks"}},
        {"gemma-3-12b-it-text-only",
         11'766'034'176,
         11'766'034'176,
         {"40 of 48 layers use a 1024-token sliding window"}},
        {"gemma-3-4b-text-only", 3'880'263'168, 3'880'263'168, {"29 of 34 layers use a 1024-token sliding window"}},
        {"Olmo-3.1-32B-Instruct", 32'233'522'176, 32'233'522'176, {"48 of 64 layers use a 4096-token sliding window"}},
        {"falcon-7b", 6'921'720'704, 6'921'720'704, {"parallel attention and MLP"}},
        {"falcon-7b.legacy-names", 6'921'720'704, 6'921'720'704, {"parallel attention and MLP"}},
        {"falcon-40b-instruct.legacy-names", 41'303'293'952, 41'303'293'952, {"parallel attention and MLP"}},
        {"Llama-3_3-Nemotron-Super-49B-v1",
         49'867'145'216,
         49'867'145'216,
         {"per-block architecture (block_configs): 31 of 80 blocks without attention"}},
        // 87,666,794,496 with self-attention in all 100 layers; MllamaTextModel has 8 more embedding rows of 8,192
        // and, in each of 20 layers, two norms of 128 and two gates: + 65,536 + 20 * 258.
        {"Llama-3.2-90B-Vision-Instruct",
         87'666'865'192,
         87'666'865'192,
         {"20 of 100 layers are cross-attention to image tokens"}},
        // Per layer: attention 2*3072*6144 + 2*3072*1024, norms 2*3072 + 6144 + 1024, router 3072*256 + 256,
        // experts 256 * 3*3072*1536; 62 layers, and 2*200064*3072 + 3072.
        {"MiniMax-M2.5", 228'689'764'864, 11'030'553'088, {"mixture of experts: 256 experts, top 8"}},
        {"DeepSeek-V4-Flash", 0, 0, {"DeepseekV4ForCausalLM", "compressed sparse attention", "256 experts, top 6"}},
        {"Step-3.7-Flash",
         0,
         0,
         {"Step3p7FlashForCausalLM", "288 experts, top 8", "33 of 45 layers use a 512-token sliding window"}},
        {"gemma-4-26B-A4B",
         0,
         0,
         {"two head sizes", "128 experts, top 8", "25 of 30 layers use a 1024-token sliding window"}},
    };
    for (const Refused& row : table) {
        CAPTURE(row.file);
        const ModelFile model = load(row.file);
        CHECK(model.total_parameters == row.total);
        CHECK(model.active_parameters == row.active);
        for (const char* refusal : row.refusals) {
            CAPTURE(refusal);
            CHECK(any_contains(model.refusals, refusal));
        }
        CHECK_THROWS_AS(load_model(std::string(HEADROOM_TEST_DATA) + "/hf-configs/" + row.file + ".json"), Error);
    }
}

TEST_CASE("what is decided for the user is noted") {
    CHECK(any_contains(load("llama-7b.old-class").notes, "LLaMAForCausalLM is read as Llama"));
    CHECK(any_contains(load("llama-7b.old-class").notes, "every query head has its own KV head"));
    CHECK(any_contains(load("gemma-2b-it").notes, "tied, the default of the class"));
    CHECK(any_contains(load("falcon-7b").notes, "all query heads share one KV head"));
    CHECK(load("falcon-7b").transformer.kv_heads == 1);  // num_kv_heads says 71
    CHECK(load("falcon-40b-instruct.legacy-names").transformer.kv_heads == 8);
    CHECK(any_contains(load("Kimi-K2.5").notes, "vision tower (vision_config) is neither modelled nor counted"));
    CHECK(any_contains(load("DeepSeek-V3").notes, "1 multi-token prediction layers are not counted"));
    CHECK(any_contains(load("gpt-oss-20b").notes, "stored quantized (mxfp4)"));
    CHECK(any_contains(load("Llama-3.2-90B-Vision-Instruct").notes, "approximately 87666794496"));
    CHECK(load("DeepSeek-V3").transformer.head_dim == 192);  // 128 + 64, not 7168/128 = 56
}

TEST_CASE("sizes stand where they stand: nested models, aliases, null") {
    CHECK(import(tiny("")).total_parameters == tiny_total);
    // The vision tower's sizes and the top level's are not the language model's.
    CHECK(import(R"({"hidden_size": 1, "vision_config": {"hidden_size": 2}, "text_config": )" + tiny("") + "}")
              .total_parameters == tiny_total);
    CHECK(import("{\"thinker_config\": {\"text_config\": " + tiny("") + "}}").total_parameters == tiny_total);
    CHECK(
        import("{\"llm_config\": " + tiny("") + ", \"language_config\": " + tiny("\"tie_word_embeddings\": true") + "}")
            .total_parameters == tiny_total - 6'400);
    // The text model's own flag counts, then the top level's.
    CHECK(import("{\"tie_word_embeddings\": true, \"text_config\": " + tiny("") + "}").total_parameters ==
          tiny_total - 6'400);
    CHECK(import(tiny("\"head_dim\": null")).transformer.head_dim == 16);
    CHECK(import(tiny("\"head_dim\": 32")).transformer.query_width() == 128);
    // A generation setting is no context length.
    CHECK(import(tiny("\"max_length\": 20")).transformer.max_positions == 0);
    CHECK(import(tiny("\"architectures\": null")).total_parameters == tiny_total);
}

TEST_CASE("biases follow flags and classes") {
    // attention_bias: 64 + 2*32 for q, k, v and 64 for the output, each of 4 layers.
    CHECK(import(tiny("\"attention_bias\": true")).total_parameters == tiny_total + 4 * (128 + 64));
    CHECK(import(tiny("\"mlp_bias\": true")).total_parameters == tiny_total + 4 * (2 * 128 + 64));
    CHECK(import(tiny("\"model_type\": \"qwen2\"")).total_parameters == tiny_total + 4 * 128);
    CHECK(import(tiny("\"model_type\": \"mistral\", \"sliding_window\": null, \"attention_bias\": true"))
              .total_parameters == tiny_total);  // the class has none
    CHECK(import(tiny("\"model_type\": \"qwen3\", \"head_dim\": 16")).total_parameters == tiny_total + 4 * 32);
    CHECK(import(tiny("\"model_type\": \"olmo2\"")).total_parameters == tiny_total + 4 * (64 + 32));
}

TEST_CASE("GPT-2 names") {
    // openai-community/gpt2: 124,439,808 = 50257*768 + 1024*768 + 12 * (4*768 + 768*2304 + 2304 + 768*768 + 768
    // + 2*768*3072 + 3072 + 768) + 2*768.
    const std::string gpt2 =
        R"("n_embd": 768, "n_head": 12, "n_layer": 12, "n_inner": null, "n_positions": 1024, "vocab_size": 50257)";
    const ModelFile model = import(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], )" + gpt2 + "}");
    CHECK(model.refusals.empty());
    CHECK(model.total_parameters == 124'439'808);
    CHECK(model.transformer.kv_heads == 12);
    CHECK(model.transformer.learned_positions == 1024);
    CHECK(model.transformer.rotary_fraction == 0);
    // GPT-BigCode with multi_query: k and v of 64 instead of 768, 12 * 2 * 704 * 769 fewer.
    const ModelFile big_code = import(R"({"model_type": "gpt_bigcode", "multi_query": true, )" + gpt2 + "}");
    CHECK(big_code.transformer.kv_heads == 1);
    CHECK(big_code.total_parameters == 124'439'808 - 12 * 2 * 704 * 769);
}

TEST_CASE("totals that the published checkpoints have") {
    // EleutherAI/pythia-160m
    CHECK(import(R"({"model_type": "gpt_neox", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "vocab_size": 50304, "tie_word_embeddings": false})")
              .total_parameters == 162'322'944);
    // deepseek-ai/DeepSeek-V2-Lite: queries without a low rank, router without a bias
    CHECK(import(R"({"model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "kv_lora_rank": 512,
        "q_lora_rank": null, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "vocab_size": 102400, "topk_method": "greedy"})")
              .total_parameters == 15'706'484'224);
    // Qwen/Qwen1.5-MoE-A2.7B: a shared expert with a gate, biases of q, k, v
    CHECK(import(R"({"model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
        "vocab_size": 151936})")
              .total_parameters == 14'315'784'192);
    // google/gemma-2-2b
    CHECK(import(R"({"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000})")
              .total_parameters == 2'614'341'888);
    // microsoft/Phi-4-mini-instruct
    const ModelFile phi = import(R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 200064,
        "tie_word_embeddings": true, "partial_rotary_factor": 0.75})");
    CHECK(phi.total_parameters == 3'836'021'760);
    CHECK(phi.transformer.rotary_fraction == 0.75);
    CHECK(import(tiny(R"("rope_parameters": {"partial_rotary_factor": 0.5})")).transformer.rotary_fraction == 0.5);
    CHECK(load("MiniMax-M2.5").transformer.rotary_fraction == 0.5);  // rotary_dim 64 of 128
}

TEST_CASE("windows count only where they are on") {
    const auto refusals = [](const std::string& extra) { return import(tiny(extra)).refusals; };
    CHECK(refusals(R"("model_type": "mistral", "sliding_window": null)").empty());
    CHECK(any_contains(refusals(R"("model_type": "mistral", "sliding_window": 4096)"),
                       "4 of 4 layers use a 4096-token sliding window"));
    CHECK(any_contains(refusals(R"("model_type": "mistral")"), "4 of 4 layers use a 4096-token"));  // class default
    CHECK(refusals(R"("model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": false)").empty());
    CHECK(any_contains(
        refusals(R"("model_type": "qwen2", "sliding_window": 512, "use_sliding_window": true, "max_window_layers": 1)"),
        "3 of 4 layers use a 512-token sliding window"));
    const std::string full = R"("layer_types": ["full_attention", "full_attention", "full_attention", )";
    CHECK(refusals(full + R"("full_attention"])").empty());
    CHECK(any_contains(refusals(full + R"("linear_attention"])"), "1 of 4 layers are linear attention"));
    CHECK(any_contains(refusals(full + R"("conv"])"), "1 of 4 layers have type 'conv'"));
}

TEST_CASE("other structures are refused by name") {
    const auto refusals = [](const std::string& extra) { return import(tiny(extra)).refusals; };
    CHECK(any_contains(refusals(R"("model_type": "t5", "is_encoder_decoder": true)"), "an encoder-decoder model"));
    CHECK(any_contains(refusals(R"("model_type": "qwen3_next", "full_attention_interval": 4)"),
                       "3 of 4 layers are linear attention"));
    CHECK(any_contains(refusals(R"("model_type": "bamba", "mamba_d_state": 16)"), "state-space layers"));
    CHECK(any_contains(refusals(R"("model_type": "gpt_neox")"), "parallel attention"));
    CHECK(any_contains(refusals(R"("model_type": "whatever")"), "model class whatever is not known"));
    CHECK(import(tiny(R"("model_type": "whatever")")).total_parameters == 0);
    CHECK(any_contains(refusals(R"("model_type": "gpt2", "n_positions": 8, "add_cross_attention": true)"),
                       "cross-attention in every layer"));
    CHECK(any_contains(refusals(R"("model_type": "llama", "kv_lora_rank": 8, "qk_nope_head_dim": 8,
                                   "qk_rope_head_dim": 8, "v_head_dim": 8)"),
                       "multi-head latent attention (kv_lora_rank 8)"));
    // A class without experts whose config has some: not counted as dense.
    const ModelFile odd = import(tiny(R"("model_type": "llama", "num_local_experts": 8, "num_experts_per_tok": 2)"));
    CHECK(any_contains(odd.refusals, "mixture of experts: 8 experts, top 2"));
    CHECK(odd.total_parameters == 0);
}

TEST_CASE("an unknown class that states all a Llama states is read by its fields") {
    const std::string fields = R"("architectures": ["AcmeForCausalLM"], "attention_bias": false, "mlp_bias": false,
        "rms_norm_eps": 1e-05, "hidden_act": "silu", "tie_word_embeddings": false)";
    const ModelFile model = import(tiny(fields));
    CHECK(model.refusals.empty());
    CHECK(model.total_parameters == tiny_total);
    CHECK(any_contains(model.notes, "class AcmeForCausalLM is not known: read by its fields as Llama"));
    CHECK_FALSE(import(tiny(fields + R"(, "use_qk_norm": true)")).refusals.empty());
    CHECK(any_contains(import(tiny("")).notes, "no model class is given: read by its fields as Llama"));
    CHECK(any_contains(import(tiny("\"use_qk_norm\": true")).refusals, "use_qk_norm is not a field of a plain one"));
}

TEST_CASE("unusual head sizes are noted") {
    CHECK(any_contains(import(tiny("\"head_dim\": 75")).notes, "head_dim 75 is not a multiple of 8"));
    CHECK(any_contains(import(tiny("\"head_dim\": 512")).notes, "above 256"));
}
