// SPDX-License-Identifier: Apache-2.0
// Claim: the built-in models, clusters and recipes are what their sources say.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "configs/builtin_data.hpp"
#include "configs/load.hpp"

using namespace headroom;

namespace {

struct Total {
    const char* name;
    std::int64_t parameters;
};

}  // namespace

TEST_CASE("built-in models have exactly the parameters of the originals") {
    // Block: D*H*d + 2*D*Hkv*d + H*d*D + 3*D*F + 2*D; root: V*D (twice when not tied) + D.
    const std::vector<Total> table{
        // 32 * (2*4096^2 + 2*4096*1024 + 3*4096*14336 + 2*4096 = 218,112,000) + 2*128256*4096 + 4096
        {"llama3-8b", 8'030'261'248},
        {"llama3.1-8b", 8'030'261'248},
        // 80 * (2*8192^2 + 2*8192*1024 + 3*8192*28672 + 2*8192 = 855,654,400) + 2*128256*8192 + 8192
        {"llama3-70b", 70'553'706'496},
        {"llama3.1-70b", 70'553'706'496},
        // 126 * (2*16384^2 + 2*16384*1024 + 3*16384*53248 + 2*16384) + 2*128256*16384 + 16384
        {"llama3.1-405b", 405'853'388'800},
        // 16 * (2*2048^2 + 2*2048*512 + 3*2048*8192 + 2*2048 = 60,821,504) + 128256*2048 + 2048, tied
        {"llama3.2-1b", 1'235'814'400},
        // 28 * (2*3072^2 + 2*3072*1024 + 3*3072*8192 + 2*3072) + 128256*3072 + 3072, tied
        {"llama3.2-3b", 3'212'749'824},
        // 32 * (4*4096^2 + 3*4096*11008 + 2*4096 = 202,383,360) + 2*32000*4096 + 4096
        {"llama2-7b", 6'738'415'616},
        // 40 * (4*5120^2 + 3*5120*13824 + 2*5120) + 2*32000*5120 + 5120
        {"llama2-13b", 13'015'864'320},
        // 32 * 218,112,000 + 2*32768*4096 + 4096
        {"mistral-7b", 7'248'023'552},
        // 40 * (2*5120^2 + 2*5120*1280 + 3*5120*17920 + 2*5120 = 340,797,440) + 2*100352*5120 + 5120
        {"phi-4", 14'659'507'200},
        // 28 * (2*3584^2 + 2*3584*512 + biases 3584+1024 + 3*3584*18944 + 2*3584) + 2*152064*3584 + 3584
        {"qwen2.5-7b", 7'615'616'512},
        // Qwen3 adds two norms of 128 to a block; up to 4b tied.
        // 28 * (2*1024*2048 + 2*1024*1024 + 3*1024*3072 + 2*1024 + 256) + 151936*1024 + 1024
        {"qwen3-0.6b", 596'049'920},
        {"qwen3-1.7b", 1'720'574'976},
        // 36 * (2*2560*4096 + 2*2560*1024 + 3*2560*9728 + 2*2560 + 256 = 100,930,816) + 151936*2560 + 2560
        {"qwen3-4b", 4'022'468'096},
        {"qwen3-8b", 8'190'735'360},
        {"qwen3-14b", 14'768'307'200},
        // 64 * (2*5120*8192 + 2*5120*1024 + 3*5120*25600 + 2*5120 + 256 = 487,598,336) + 2*151936*5120 + 5120
        {"qwen3-32b", 32'762'123'264},
        // The UPipe authors' geometry: no QK norms, the Llama-3 tokenizer: 64 * 487,598,080 + 2*128256*5120 + 5120
        {"upipe-qwen3-32b", 32'519'623'680},
    };
    for (const Total& row : table) {
        CAPTURE(row.name);
        const ModelFile model = load_model_file(row.name);
        CHECK(model.total_parameters == row.parameters);
        CHECK(model.refusals.empty());
        CHECK(model.source == "built-in");
        CHECK(model.transformer.name == row.name);
        CHECK(count_parameters(load_model(row.name)).total() == row.parameters);
    }
    CHECK(builtin_models().size() == table.size());
}

TEST_CASE("names come in natural order") {
    const std::vector<std::string> names = builtin_models();
    const auto at = [&](const char* name) { return std::find(names.begin(), names.end(), name) - names.begin(); };
    CHECK(at("qwen3-4b") < at("qwen3-8b"));
    CHECK(at("qwen3-8b") < at("qwen3-14b"));
    CHECK(at("qwen3-32b") < static_cast<std::ptrdiff_t>(names.size()));
    CHECK_FALSE(builtin_text("models", "h200"));
    CHECK_FALSE(builtin_text("models", ""));
}

TEST_CASE("attention shapes of the models papers use") {
    const Transformer llama = load_model("llama3-8b");
    CHECK(llama.group() == 4);
    CHECK(llama.head_dim == 128);
    CHECK(llama.max_positions == 8192);
    CHECK(load_model("llama3.1-8b").max_positions == 131072);
    CHECK(load_model("llama3.2-1b").head_dim == 64);
    const Transformer qwen = load_model("qwen3-32b");
    CHECK(qwen.query_width() == 8192);  // wider than hidden
    CHECK(qwen.hidden == 5120);
    CHECK(qwen.qk_norm == QkNorm::per_head);
    CHECK(load_model("upipe-qwen3-32b").qk_norm == QkNorm::none);
    CHECK(load_model("qwen2.5-7b").qkv_bias);
    CHECK_FALSE(load_model("qwen2.5-7b").output_bias);
}

TEST_CASE("built-in clusters") {
    CHECK(builtin_clusters() == std::vector<std::string>{"a100-sxm-40gb", "a100-sxm-80gb", "b200", "h100-pcie-80gb",
                                                         "h100-sxm-80gb", "h200", "h200-x1", "h200-x2"});
    for (const std::string& name : builtin_clusters()) {
        CAPTURE(name);
        const Cluster cluster = load_cluster(name);
        CHECK(cluster.name == name);
        CHECK(cluster.nodes == 1);
        CHECK(cluster.gpus() == (name == "h200-x1" ? 1 : name == "h200-x2" ? 2 : 8));
        CHECK(cluster.host_memory_usable == 0.95);
        CHECK(cluster.cuda_context.value == 649'068'544);
        CHECK(cluster.nccl_communicator.value == 880'803'840);
        CHECK(cluster.nccl_peer_buffer.value == 469'000'000);
    }
    const Cluster h100 = load_cluster("h100-sxm-80gb");
    CHECK(h100.architecture == "hopper");
    CHECK(in_gib(h100.device_memory) == doctest::Approx(79.1).epsilon(1e-4));
    CHECK(h100.host_memory.value == 2'000'000'000'000);
    CHECK(h100.peak_bf16.value == 989.4e12);
    CHECK(h100.memory_bandwidth.value == 3.35e12);
    CHECK(h100.nvlink_bandwidth.value == 450e9);
    CHECK(h100.pcie_bandwidth.value == 64e9);
    CHECK(h100.nic_bandwidth.value == 50e9);
    CHECK(load_cluster("h200").device_memory.value == 150'109'880'320);
    CHECK(load_cluster("h200").memory_bandwidth.value == 4.8e12);
    CHECK(load_cluster("h100-pcie-80gb").nvlink_bandwidth.value == 0);
    CHECK(load_cluster("h100-pcie-80gb").peak_bf16.value == 756e12);
    CHECK(in_gib(load_cluster("a100-sxm-80gb").device_memory) == doctest::Approx(79.15).epsilon(1e-4));
    CHECK(in_gib(load_cluster("a100-sxm-40gb").device_memory) == doctest::Approx(39.39).epsilon(1e-4));
    CHECK(load_cluster("a100-sxm-40gb").host_memory.value == 1'000'000'000'000);
    CHECK(load_cluster("a100-sxm-40gb").nic_bandwidth.value == 25e9);
    CHECK(in_gib(load_cluster("b200").device_memory) == doctest::Approx(178.3).epsilon(1e-4));
    CHECK(load_cluster("b200").architecture == "blackwell");
    CHECK(load_cluster("b200").peak_bf16.value == 2250e12);
}

TEST_CASE("published recipes") {
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        const Settings recipe = published_recipe(static_cast<Method>(i));
        CAPTURE(method_names[i]);
        CHECK(recipe.method == static_cast<Method>(i));
        CHECK_FALSE(recipe.context);          // the user's
        CHECK_FALSE(recipe.sharding_degree);  // all ranks
        CHECK_FALSE(recipe.heads_per_stage);  // the Ulysses degree
        CHECK(recipe.checkpointing == Checkpointing::full);
        CHECK(recipe.offload_optimizer == false);
        CHECK(recipe.precision_parameters == NumberFormat::fp32);
    }
    for (const Method method : {Method::upipe, Method::usp, Method::ulysses, Method::ring}) {
        const Settings recipe = published_recipe(method);
        CHECK(recipe.implementation == Implementation::untied_ulysses);
        CHECK(recipe.attention_kernel == AttentionKernel::fa3);
        CHECK_FALSE(recipe.offload_block_inputs);
        CHECK(recipe.tiling_mlp == Tiling{Tiling::Kind::automatic, 0});
        CHECK(recipe.tiling_norm == Tiling{Tiling::Kind::automatic, 0});
        CHECK(recipe.sharding_strategy == ShardingStrategy::fsdp);
        CHECK(recipe.precision_compute == NumberFormat::bf16);
        CHECK(recipe.expandable_segments == true);
    }
    const Settings native = published_recipe(Method::native);
    CHECK(native.attention_kernel == AttentionKernel::fa2);
    CHECK(native.rotation == Rotation::all_gather);
    CHECK(native.tiling_mlp == Tiling{});
    CHECK(native.tiling_norm == Tiling{});
    CHECK(native.tiling_loss == Tiling{Tiling::Kind::automatic, 0});
    const Settings fpdt = published_recipe(Method::fpdt);
    CHECK(fpdt.implementation == Implementation::megatron_deepspeed);
    CHECK(fpdt.chunk_tokens == Tokens{65536});
    CHECK(fpdt.offload_chunks == true);
    CHECK(fpdt.offload_block_inputs == HostPlace::pageable);
    CHECK(fpdt.sharding_strategy == ShardingStrategy::zero3);
    CHECK(fpdt.precision_compute == NumberFormat::fp16);
    CHECK(fpdt.precision_reduction == NumberFormat::fp16);
    CHECK(fpdt.tiling_norm == Tiling{});
    CHECK(fpdt.expandable_segments == false);
}
