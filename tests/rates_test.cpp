// SPDX-License-Identifier: Apache-2.0
// Laws against values worked by hand, and what must hold at every shape.
#include <doctest/doctest.h>

#include <cmath>

#include "configs/calibration.hpp"
#include "simulator/rates.hpp"
#include "tests/simple_calibration.hpp"

using namespace headroom;

namespace {

Attention square(std::int64_t length, std::int32_t heads, bool causal, bool backward = false) {
    return {length, length, heads, heads, 128, 1, causal, backward};
}

constexpr auto fa2 = static_cast<std::size_t>(AttentionKernel::fa2);

}  // namespace

TEST_CASE("attention counts the products that the mask leaves") {
    // 4 * 2 heads * 1000 * 3000 * 128
    const Attention rectangle{1000, 3000, 2, 1, 128, 1, false, false};
    CHECK(attention_flops(rectangle) == doctest::Approx(3.072e9));
    CHECK(attention_flops(square(1000, 2, true)) == doctest::Approx(0.512e9));
    CHECK(attention_flops(square(1000, 2, true, true)) == doctest::Approx(1.28e9));
}

TEST_CASE("the rate is half of the asymptote at the half length") {
    Calibration calibration = simple_calibration();
    auto& kernel = calibration.attention[fa2];
    for (auto& direction : kernel.curves) {
        for (auto& curve : direction) {
            curve.half_length = 4096;
            curve.exponent = 1.3;
        }
    }
    CHECK(attention_rate(kernel, square(4096, 1, false), 1) == doctest::Approx(0.5e12));
    // 1 + (4096/16384)^1.3 = 1 + 0.25^1.3 = 1.16494
    CHECK(attention_rate(kernel, square(16384, 1, false), 1) == doctest::Approx(1e12 / 1.16494).epsilon(1e-5));
    // forward looks at the keys, backward at the queries
    const Attention forward{16384, 4096, 1, 1, 128, 1, false, false};
    const Attention backward{16384, 4096, 1, 1, 128, 1, false, true};
    CHECK(attention_rate(kernel, forward, 1) == doctest::Approx(0.5e12));
    CHECK(attention_rate(kernel, backward, 1) == doctest::Approx(1e12 / 1.16494).epsilon(1e-5));
}

TEST_CASE("a tail costs causal kernels of few blocks, and a fall long ones") {
    Calibration calibration = simple_calibration();
    auto& kernel = calibration.attention[fa2];
    kernel.curves[0][1].tail = 0.5;
    kernel.curves[0][0].fall = 0.5;
    // 64K rows in blocks of 128: 512 blocks on 128 SMs, 1 + 0.5 * 256/512
    CHECK(attention_rate(kernel, square(65536, 1, true), 128) == doctest::Approx(0.8e12));
    CHECK(attention_rate(kernel, square(65536, 4, true), 128) == doctest::Approx(1e12 / 1.0625));
    CHECK(attention_rate(kernel, square(262144, 1, false), 128) == doctest::Approx(0.5e12));
    // 32 blocks cannot use 128 SMs
    CHECK(attention_rate(kernel, square(4096, 1, false), 128) == doctest::Approx(0.25 * 1e12 * 4));
}

TEST_CASE("other head dimensions run at their own share of the rate") {
    Calibration calibration = simple_calibration();
    auto& kernel = calibration.attention[fa2];
    kernel.head_dim_64 = 0.5;
    kernel.head_dim_256 = 2.0;
    const auto rate = [&](std::int32_t head_dim) {
        return attention_rate(kernel, {1024, 1024, 8, 8, head_dim, 1, false, false}, 1);
    };
    CHECK(rate(64) == doctest::Approx(0.5e12));
    CHECK(rate(128) == doctest::Approx(1e12));
    CHECK(rate(256) == doctest::Approx(2e12));
    CHECK(rate(96) > rate(64));
    CHECK(rate(96) < rate(128));
}

TEST_CASE("waves: the last one may be nearly empty, and long narrow products are split along k") {
    GemmConstants constants;
    constants.streaming_multiprocessors = 100;
    constants.tile_rows = 128;
    constants.tile_columns = 256;
    CHECK(wave_efficiency(constants, 12800, 256, 64) == doctest::Approx(1.0));          // 100 tiles
    CHECK(wave_efficiency(constants, 12801, 256, 64) == doctest::Approx(101 / 200.0));  // one more
    CHECK(wave_efficiency(constants, 1280, 256, 64) == doctest::Approx(0.1));
    CHECK(wave_efficiency(constants, 1280, 256, 8192) == doctest::Approx(0.8));  // 10 tiles in 8 slices of k
}

TEST_CASE("the product table: exact at its points, between them over log n, symmetric, slower when narrower") {
    Calibration calibration = simple_calibration();
    GemmConstants& gemm = calibration.gemm;
    gemm.points = {{65536, 256, 4096, exactly(400e9)}, {65536, 1024, 4096, exactly(800e9)}};
    CHECK(gemm_rate(gemm, 65536, 256, 4096) == doctest::Approx(400e9));
    CHECK(gemm_rate(gemm, 65536, 1024, 4096) == doctest::Approx(800e9));
    CHECK(gemm_rate(gemm, 65536, 512, 4096) == doctest::Approx(600e9));
    CHECK(gemm_rate(gemm, 512, 65536, 4096) == doctest::Approx(600e9));
    CHECK(gemm_rate(gemm, 65536, 128, 4096) == doctest::Approx(200e9));
    CHECK(gemm_rate(gemm, 65536, 8192, 4096) == doctest::Approx(800e9));
}

TEST_CASE("within one width the product table is read over log m") {
    Calibration calibration = simple_calibration();
    calibration.gemm.points = {{1024, 256, 4096, exactly(200e9)}, {4096, 256, 4096, exactly(400e9)}};
    CHECK(gemm_rate(calibration.gemm, 2048, 256, 4096) == doctest::Approx(300e9));
    CHECK(gemm_rate(calibration.gemm, 512, 256, 4096) == doctest::Approx(200e9));
    CHECK(gemm_rate(calibration.gemm, 65536, 256, 4096) == doctest::Approx(400e9));
}

TEST_CASE("a product with little reuse takes the time of its bytes") {
    const Calibration calibration = simple_calibration();
    // 2 * (1000*1 + 1*1000 + 1000*1000) bytes at 1 GB/s, against 2e6 operations at 1 TFLOP/s
    CHECK(gemm_seconds(calibration, {1000, 1000, 1, 1, false}) == doctest::Approx(2.004e-3));
}

TEST_CASE("a shallow product pays for its result, and one that adds for reading it") {
    Calibration calibration = simple_calibration();
    // 1 TFLOP/s and 1 GB/s: 2 * 1e12 * 1536 operations are 3.072e3 s, a result of 2e12 bytes moves in 2e3 s.
    const double before = gemm_seconds(calibration, {1'000'000, 1'000'000, 1536, 1, false});
    calibration.gemm.epilogue = exactly(0.5);
    // The table's rate holds the result at a depth of 4096: five eighths of it are missing at 1536.
    CHECK(gemm_seconds(calibration, {1'000'000, 1'000'000, 1536, 1, false}) - before ==
          doctest::Approx(0.5 * 0.625 * 2e3));
    CHECK(gemm_seconds(calibration, {1'000'000, 1'000'000, 1536, 1, true}) - before ==
          doctest::Approx(0.5 * 1.625 * 2e3));
    calibration.gemm.epilogue = {};
    CHECK(gemm_seconds(calibration, {1'000'000, 1'000'000, 1536, 1, false}) == before);
}

TEST_CASE("link tables: log-log between points, constant rate beyond them") {
    const std::vector<LinkPoint> points{{1e6, 1e-3}, {4e6, 2e-3}};
    CHECK(table_seconds(points, 1e6) == doctest::Approx(1e-3));
    CHECK(table_seconds(points, 2e6) == doctest::Approx(std::sqrt(2.0) * 1e-3));
    CHECK(table_seconds(points, 8e6) == doctest::Approx(4e-3));
    CHECK(table_seconds(points, 0.5e6) == doctest::Approx(0.5e-3));
    CHECK(table_seconds(points, 0) == 0);
}

TEST_CASE("what a rank sends: its own share stays") {
    const Calibration calibration = simple_calibration();  // 1 GB/s inside, 100 MB/s per NIC
    const auto seconds = [&](CollectiveKind kind, const GroupShape& group) {
        return collective_seconds(calibration, {kind, CommGroup::ulysses, 8'000'000}, group);
    };
    CHECK(seconds(CollectiveKind::all_to_all, {8, 8}) == doctest::Approx(7e-3));
    CHECK(seconds(CollectiveKind::all_gather, {8, 8}) == doctest::Approx(7e-3));
    CHECK(seconds(CollectiveKind::send_recv, {8, 8}) == doctest::Approx(8e-3));
    // 8 of 16 ranks are elsewhere: half of the bytes over the NIC
    CHECK(seconds(CollectiveKind::all_to_all, {16, 8}) == doctest::Approx(40e-3));
    CHECK(seconds(CollectiveKind::all_gather, {16, 8}) == doctest::Approx(75e-3));
    CHECK(seconds(CollectiveKind::send_recv, {16, 8}) == doctest::Approx(80e-3));
    // to itself: a copy on the device
    CHECK(seconds(CollectiveKind::send_recv, {1, 1}) == doctest::Approx(16e-3));
    CHECK(seconds(CollectiveKind::all_to_all, {1, 1}) < 1e-9);
}

TEST_CASE("host copies: pinned share PCIe with the other GPUs, pageable ones fault when fresh") {
    Calibration calibration = simple_calibration();
    calibration.host.all_gpus = exactly(0.5);
    CHECK(copy_seconds(calibration, {true, true, false, 1'000'000}, 1) == doctest::Approx(1e-3));
    CHECK(copy_seconds(calibration, {true, true, false, 1'000'000}, 8) == doctest::Approx(2e-3));
    CHECK(copy_seconds(calibration, {true, false, false, 1'000'000}, 8) == doctest::Approx(2e-3));
    CHECK(copy_seconds(calibration, {true, false, true, 1'000'000}, 8) == doctest::Approx(10e-3));
}

TEST_CASE("shipped calibrations: no kernel beats the datasheet, and more work never takes less time") {
    for (const std::string& name : builtin_calibrations()) {
        CAPTURE(name);
        const Calibration calibration = load_calibration(name);
        for (std::size_t kernel = 0; kernel < calibration.attention.size(); ++kernel) {
            if (!calibration.attention[kernel].known()) continue;
            for (const bool backward : {false, true}) {
                for (const bool causal : {false, true}) {
                    double before = 0;
                    for (std::int64_t length = 1024; length <= (1 << 23); length *= 2) {
                        const Attention shape = square(length, 4, causal, backward);
                        const double seconds =
                            attention_seconds(calibration, static_cast<AttentionKernel>(kernel), shape);
                        CHECK(seconds >= attention_flops(shape) / calibration.datasheet.peak_bf16);
                        CHECK(seconds > before);
                        before = seconds;
                    }
                }
            }
        }
        for (const std::int64_t n : {128, 256, 1024, 4096, 14336, 128256}) {
            double before = 0;
            for (std::int64_t m = 1024; m <= (1 << 20); m *= 2) {
                const double seconds = gemm_seconds(calibration, {m, n, 4096, 1, false});
                CHECK(seconds >= 2.0 * static_cast<double>(m * n) * 4096 / calibration.datasheet.peak_bf16);
                // Below one wave of tiles the time is one tile's; measured points there differ by their noise.
                const bool one_wave = m * n < std::int64_t{132} * 128 * 256;
                CHECK(seconds >= (one_wave ? 0.98 : 1.0) * before);
                before = seconds;
            }
        }
        for (const GroupShape group : {GroupShape{2, 2}, GroupShape{8, 8}, GroupShape{16, 8}}) {
            for (std::size_t kind = 0; kind < 4; ++kind) {
                double before = 0;
                for (std::int64_t bytes = 1024; bytes <= (std::int64_t{1} << 36); bytes *= 2) {
                    const Collective op{static_cast<CollectiveKind>(kind), CommGroup::context, bytes};
                    const double seconds = collective_seconds(calibration, op, group);
                    CHECK(seconds >= before);
                    before = seconds;
                }
                // No faster than the wire at the largest size.
                const double ranks = group.ranks;
                const double sent =
                    kind == static_cast<std::size_t>(CollectiveKind::send_recv) ? 1 : (ranks - 1) / ranks;
                CHECK(before >= sent * std::exp2(36) / calibration.datasheet.nvlink);
            }
        }
    }
}
