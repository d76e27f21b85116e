// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cupti.hpp"

#include "calibrate/device.hpp"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace headroom {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
std::atomic<std::uint64_t> nanoseconds{0};  // NOLINT: CUPTI's callbacks carry no pointer of ours

struct Cupti {
    decltype(&cuptiGetVersion) get_version = nullptr;
    decltype(&cuptiGetResultString) text_of = nullptr;
    decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
    decltype(&cuptiActivityEnable) enable = nullptr;
    decltype(&cuptiActivityDisable) disable = nullptr;
    decltype(&cuptiActivityFlushAll) flush = nullptr;
    decltype(&cuptiActivityGetNextRecord) next = nullptr;
    std::string refusal;  ///< empty: usable
};

const Cupti& cupti();

void request(std::uint8_t** buffer, std::size_t* size, std::size_t* most_records) {
    *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_bytes));
    *size = *buffer == nullptr ? 0 : buffer_bytes;
    *most_records = 0;
}

void complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (cupti().next(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
            if (kernel->name == nullptr || std::strstr(kernel->name, "hold_kernel") == nullptr) {
                nanoseconds += kernel->end - kernel->start;
            }
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
            nanoseconds += copy->end - copy->start;
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
            nanoseconds += set->end - set->start;
        }
    }
    std::free(buffer);
}

Cupti find_cupti() {
    Cupti result;
    void* library = nullptr;
    const std::string name = fmt::format("libcupti.so.{}", CUPTI_API_VERSION / 10000);
    for (const char* folder : {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/extras/CUPTI/lib64/"}) {
        if (library == nullptr) library = ::dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) {
        result.refusal =
            fmt::format("CUPTI is not here ({} is on no library path): events alone time the kernels", name);
        return result;
    }
    bool complete_set = true;
    const auto find = [&](auto& function, const char* symbol) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
        complete_set = complete_set && function != nullptr;
    };
    find(result.get_version, "cuptiGetVersion");
    find(result.text_of, "cuptiGetResultString");
    find(result.register_callbacks, "cuptiActivityRegisterCallbacks");
    find(result.enable, "cuptiActivityEnable");
    find(result.disable, "cuptiActivityDisable");
    find(result.flush, "cuptiActivityFlushAll");
    find(result.next, "cuptiActivityGetNextRecord");
    std::uint32_t version = 0;
    if (!complete_set || result.get_version(&version) != CUPTI_SUCCESS || version != CUPTI_API_VERSION) {
        // The layout of records is that of one version.
        result.refusal = fmt::format("CUPTI {} is here, the program was built with {}: events alone time the kernels",
                                     version, CUPTI_API_VERSION);
    }
    return result;
}

const Cupti& cupti() {
    static const Cupti found = find_cupti();
    return found;
}

constexpr std::array<CUpti_ActivityKind, 3> kinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                                  CUPTI_ACTIVITY_KIND_MEMSET};

void require(CUptiResult status, const char* call) {
    if (status == CUPTI_SUCCESS) return;
    const char* text = "unknown error";
    cupti().text_of(status, &text);
    throw Waived(fmt::format("CUPTI does not trace here ({}: {}): events alone time the kernels", call, text));
}

}  // namespace

double traced_seconds(const std::function<void()>& work) {
    if (!cupti().refusal.empty()) throw Waived(cupti().refusal);
    static const CUptiResult registered = cupti().register_callbacks(request, complete);
    require(registered, "cuptiActivityRegisterCallbacks");
    for (const CUpti_ActivityKind kind : kinds) require(cupti().enable(kind), "cuptiActivityEnable");
    nanoseconds = 0;
    work();
    const CUptiResult flushed = cupti().flush(0);
    for (const CUpti_ActivityKind kind : kinds) cupti().disable(kind);
    require(flushed, "cuptiActivityFlushAll");
    return static_cast<double>(nanoseconds.load()) * 1e-9;
}

}  // namespace headroom

#else

namespace headroom {

double traced_seconds(const std::function<void()>&) {
    throw Waived("the program was built without CUPTI's headers: events alone time the kernels");
}

}  // namespace headroom

#endif
