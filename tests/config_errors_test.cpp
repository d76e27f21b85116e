// SPDX-License-Identifier: Apache-2.0
// Claim: wrong input gives one clear error that says what, where and what to do; nothing is guessed.
#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "configs/hf_config.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "models/error.hpp"
#include "tests/complaint.hpp"
#include "tests/run_headroom.hpp"

using namespace headroom;

namespace {

std::string load_complaint(const std::string& name_or_path) {
    return complaint([&] { load_model_file(name_or_path); });
}
std::string hf_complaint(const std::string& file) {
    return load_complaint(std::string(HEADROOM_TEST_DATA) + "/hf-configs/" + file + ".json");
}
std::string import_complaint(const std::string& text) {
    return complaint([&] { import_hf_config(parse_yaml(text, "c.json"), "m", "test"); });
}

/// A directory that lives as long as the test.
struct Scratch {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("headroom-config-test-" + std::to_string(getpid()));
    Scratch() { std::filesystem::create_directories(path); }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path / name, std::ios::binary) << text;
        return (path / name).string();
    }
};

}  // namespace

TEST_CASE("all missing fields are listed at once") {
    const std::string partial = hf_complaint("DeepSeek-Coder-V2-Lite-Base.partial");
    CHECK(contains(partial, "missing vocab_size, v_head_dim | "));
    CHECK(contains(partial, "partial.json:1:1 | "));
    CHECK(contains(import_complaint("{}"),
                   "missing num_hidden_layers, hidden_size, vocab_size, num_attention_heads, "
                   "intermediate_size | c.json:1:1"));
    CHECK(contains(import_complaint(R"({"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "vocab_size": 9, "intermediate_size": 8})"),
                   "missing num_key_value_heads, head_dim"));
}

TEST_CASE("a class whose layers the file does not give is not read as a plain one") {
    const std::string sizes = R"("hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 9,
        "intermediate_size": 8, "num_key_value_heads": 4})";
    CHECK(contains(import_complaint("{\"model_type\": \"mixtral\", " + sizes), "missing num_local_experts"));
    CHECK(contains(import_complaint("{\"model_type\": \"qwen3_moe\", " + sizes), "missing num_experts"));
    CHECK(contains(import_complaint("{\"model_type\": \"deepseek_v3\", \"n_routed_experts\": 4, " + sizes),
                   "missing kv_lora_rank"));
    CHECK(contains(import_complaint("{\"model_type\": \"mllama\", " + sizes), "missing cross_attention_layers"));
    CHECK(contains(import_complaint("{\"model_type\": \"nemotron-nas\", " + sizes), "missing block_configs"));
    CHECK(contains(import_complaint("{\"architectures\": \"LlamaForCausalLM\", " + sizes),
                   "architectures must be a list, not the text \"LlamaForCausalLM\""));
    CHECK(contains(import_complaint("{\"model_type\": [], " + sizes), "model_type must be text, not a list"));
}

TEST_CASE("head counts that cannot be") {
    CHECK(contains(hf_complaint("Llama-200M.invalid-kv"), "kv heads (32) exceed q heads (4)"));
    CHECK(contains(hf_complaint("Llama-200M.invalid-kv"), ".json:4:26: num_key_value_heads"));
    const std::string sizes = R"("num_hidden_layers": 1, "vocab_size": 9, "intermediate_size": 8, )";
    CHECK(contains(import_complaint("{" + sizes + R"("hidden_size": 1000, "num_attention_heads": 16})"),
                   "hidden_size 1000 is not divisible by num_attention_heads 16 and there is no head_dim"));
    CHECK(contains(
        import_complaint("{" + sizes + R"("hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 4})"),
        "kv heads (4) do not divide q heads (6)"));
    CHECK(contains(
        import_complaint("{" + sizes + "\"hidden_size\": 24, \"num_attention_heads\": 6,\n\"num_key_value_heads\": 0}"),
        "num_key_value_heads cannot be 0 | c.json:2:24: num_key_value_heads"));
}

TEST_CASE("values under the wrong keys are type errors, all in one") {
    const std::string text = hf_complaint("malformed-types");
    CHECK(contains(text, "vocab_size must be a whole number, not 'true'"));
    CHECK(contains(text, "hidden_size 16384 is not divisible by num_attention_heads 126 and there is no head_dim"));
    CHECK(contains(text, "mlp_bias must be true or false, not '131072'"));
    CHECK(contains(text, "max_position_embeddings must be a whole number, not 'false'"));
    CHECK(contains(text, "malformed-types.json:36:17: vocab_size"));
}

TEST_CASE("names of other code") {
    const std::string native = hf_complaint("deepseek-16B.native-names");
    CHECK(contains(native, "not a Hugging Face config | "));
    CHECK(contains(native, "did you mean dim -> hidden_size, n_layers -> num_hidden_layers, n_heads -> "));
}

TEST_CASE("fields that stand twice or disagree") {
    CHECK(contains(import_complaint("{\"hidden_size\": 64,\n \"hidden_size\": 128}"),
                   "hidden_size stands twice | c.json:2:17: hidden_size | the first is at c.json:1:17"));
    CHECK(contains(import_complaint(R"({"num_kv_heads": 8, "n_head_kv": 4})"),
                   "num_kv_heads 8 and n_head_kv 4 disagree"));
    CHECK(contains(import_complaint(R"({"num_hidden_layers": 3, "layer_types": ["full_attention"]})"),
                   "layer_types has 1 entries for 3 layers"));
    CHECK(contains(import_complaint(R"({"hidden_size": 2000000000, "intermediate_size": 2000000000, "vocab_size": 2,
        "num_hidden_layers": 2, "num_attention_heads": 1})"),
                   "the sizes multiply to"));
}

TEST_CASE("files that are no configs") {
    const Scratch scratch;
    CHECK(contains(load_complaint(scratch.path.string()), "holds no config.json"));
    CHECK(contains(load_complaint(scratch.write("empty.json", " \n")), "empty.json' is empty"));
    CHECK(contains(load_complaint(scratch.write("weights.bin", std::string("ab\0c", 4))), "is a binary file"));
    CHECK(contains(load_complaint(scratch.write("cut.json", "{\"hidden_size\": 4096,\n")),
                   "the file ends before this bracket is closed"));
    CHECK(contains(load_complaint(scratch.write("list.json", "[1, 2]")), "not a Hugging Face config: it is a list"));
    CHECK(contains(load_complaint(scratch.write("big.json", std::string((16 << 20) + 1, ' '))), "is too large"));
    if (geteuid() != 0) {  // root reads everything
        const std::string closed = scratch.write("closed.json", "{}");
        std::filesystem::permissions(closed, std::filesystem::perms::none);
        CHECK(contains(load_complaint(closed), "cannot read"));
    }
}

TEST_CASE("a directory with a config.json is a model called after the directory") {
    const Scratch scratch;
    scratch.write("config.json", R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100})");
    const ModelFile model = load_model_file(scratch.path.string());
    CHECK(model.name == scratch.path.filename().string());
    CHECK(model.transformer.name == model.name);
    CHECK(model.source == (scratch.path / "config.json").string());
    CHECK(load_model_file(model.source).name == model.name);

    // The Hugging Face cache: a link to a blob, in a directory called after the commit.
    const std::filesystem::path snapshot = scratch.path / "models--acme--Tiny-1B" / "snapshots" / "0a1b";
    std::filesystem::create_directories(snapshot);
    std::filesystem::create_symlink(model.source, snapshot / "config.json");
    CHECK(load_model_file(snapshot.string()).name == "Tiny-1B");
    CHECK(load_model_file((snapshot / "config.json").string()).name == "Tiny-1B");
}

TEST_CASE("names that nothing is called") {
    CHECK(contains(load_complaint("llama3-8"),
                   "no built-in model, file or directory is called 'llama3-8' | llama3-8 | "
                   "did you mean llama3-8b? `headroom show models` lists"));
    CHECK(contains(load_complaint("Qwen/Qwen3-14B"), "did you mean qwen3-14b?"));
    CHECK(contains(load_complaint(""), "no built-in model"));
    CHECK(contains(complaint([] { load_cluster("h100"); }), "did you mean h100-pcie-80gb or h100-sxm-80gb?"));
    CHECK(contains(complaint([] { load_cluster("mainframe"); }), "`headroom show clusters` lists"));
}

TEST_CASE("models that cannot be planned say why") {
    const std::string path = std::string(HEADROOM_TEST_DATA) + "/hf-configs/gpt-oss-20b.json";
    const std::string text = complaint([&] { load_model(path); });
    CHECK(contains(text, "gpt-oss-20b cannot be planned: mixture of experts: 32 experts, top 4; "));
    CHECK(contains(text, "12 of 24 layers use a 128-token sliding window | " + path));
}

TEST_CASE("cluster files") {
    const Scratch scratch;
    const auto read = [&](const std::string& text) {
        return complaint([&] { load_cluster(scratch.write("lab.yaml", text)); });
    };
    CHECK(contains(read("base: h100-sxm-80gb\ndevice_memry: 96GiB\n"),
                   "unknown key device_memry | " + scratch.path.string() +
                       "/lab.yaml:2:15: device_memry | did you mean device_memory?"));
    CHECK(contains(read("base: h100\n"), "base names no built-in cluster: 'h100'"));
    CHECK(contains(read("nodes: 2\n"), "missing architecture, gpus_per_node, device_memory, host_memory, peak_bf16, "));
    CHECK(contains(read("base: h200\nnodes: 0\n"), "nodes must be between 1 and 1000000, not 0"));
    CHECK(contains(read("base: h200\nnodes: 010\n"), "lab.yaml:2:8: nodes | write 10"));
    CHECK(contains(read("base: h200\ndevice_memory: 96G\n"), "device_memory is not a size: '96G'"));
    CHECK(contains(read("base: h200\nhost_memory_usable: 1.5\n"), "must be a share between 0 and 1, not 1.5"));
    CHECK(contains(read("base: h200\npcie_bandwidth: 0\n"), "pcie_bandwidth must be more than 0"));
    CHECK(contains(read("base: h200\narchitecture: hoper\n"), "did you mean hopper?"));
    CHECK(contains(read("base: h200\nbase: b200\n"), "base stands twice"));
    CHECK(contains(read("- h200\n"), "a cluster must be a map of keys, not a list"));
}

TEST_CASE("recipe files and --set") {
    const Scratch scratch;
    const auto read = [&](const std::string& text) {
        return complaint([&] { load_recipe(scratch.write("r.yaml", text)); });
    };
    CHECK(
        contains(read("method: upip\n"), "method must be one of native, ring, ulysses, usp, fpdt, upipe, not 'upip'"));
    CHECK(contains(read("method: upip\n"), "r.yaml:1:9: method | did you mean upipe?"));
    CHECK(contains(read("ulises: 8\n"), "unknown recipe key 'ulises'"));
    CHECK(contains(read("ulises: 8\n"), "did you mean ulysses?"));
    CHECK(contains(read("offload: {blok_inputs: none}\n"), "did you mean offload.block_inputs?"));
    CHECK(contains(read("offload: pinned\n"), "offload must be a map of its settings, not 'pinned'"));
    CHECK(contains(read("offload:\n  chunks: true\noffload.chunks: false\n"), "offload.chunks stands twice"));
    CHECK(contains(read("offload.optimizer: yes\n"), "offload.optimizer must be true or false, not 'yes'"));
    CHECK(contains(read("ulysses: true\n"), "ulysses must be a whole number, not 'true'"));
    CHECK(contains(read("ulysses: 0\n"), "ulysses must be between 1 and"));
    CHECK(contains(read("ulysses:\n"), "ulysses must be a whole number, not null"));
    CHECK(contains(read("context: 128KB\n"), "tokens are not bytes"));
    CHECK(contains(read("tiling.mlp: on\n"), "tiling.mlp must be off, auto or tokens per tile, not 'on'"));
    CHECK(contains(read("just text\n"), "a recipe must be a map of keys, not 'just text'"));

    const auto assign = [](const std::string& assignment) {
        return complaint([&] {
            Settings settings;
            set(settings, assignment);
        });
    };
    CHECK(contains(assign("ring"), "'ring' is not key=value | --set"));
    CHECK(contains(assign("=2"), "'=2' is not key=value"));
    CHECK(contains(assign("ring="), "ring must be a whole number, not '' | --set: ring"));
    CHECK(contains(assign("rings=2"), "unknown recipe key 'rings' | --set: rings | did you mean ring?"));
    CHECK(contains(assign("allocator.expandable_segments=on"), "write true"));
}
