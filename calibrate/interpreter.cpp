// SPDX-License-Identifier: Apache-2.0
#include "calibrate/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::size_t host = stream_count;

std::size_t number(Stream stream) { return static_cast<std::size_t>(stream); }

std::string stream_name(std::size_t stream) {
    return stream == host ? "host" : std::string(to_string(static_cast<Stream>(stream)));
}

[[noreturn]] void wrong(const char* launch, const std::string& what) {
    throw Error(what, fmt::format("launch '{}'", launch), "the schedule is wrong; please report it");
}

template <class Clock>
void join(Clock& clock, const Clock& other) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, std::int64_t element, int head_dim, ComputeDevice& device)
    : schedule_(schedule), element_(element), head_dim_(head_dim), device_(device) {}

Interpreter::~Interpreter() {
    for (auto& [id, stack] : tensors_) {
        for (const Tensor& tensor : stack) {
            if (tensor.address != nullptr) device_.release(tensor.address, tensor.place);
        }
    }
}

void Interpreter::run(const Segment& segment) {
    for (std::uint32_t turn = 0; turn < segment.repeat; ++turn) {
        for_each_event(schedule_, segment, [&](const Event& event) {
            switch (event.kind) {
                case EventKind::allocate:
                    return allocate(event);
                case EventKind::release:
                    return release(event.id);
                case EventKind::record:
                    recorded_[event.id] = clocks_[number(event.stream)];
                    return device_.record(event.stream, event.id);
                case EventKind::wait:
                    if (const auto found = recorded_.find(event.id); found != recorded_.end()) {
                        join(clocks_[number(event.stream)], found->second);
                        device_.wait(event.stream, event.id);
                    }
                    return;
                case EventKind::host_wait:
                    join(clocks_[host], clocks_[number(event.stream)]);
                    return device_.host_wait(event.stream);
                case EventKind::gemm:
                case EventKind::attention:
                case EventKind::memory_bound:
                case EventKind::collective:
                case EventKind::copy:
                    return launch(static_cast<std::uint32_t>(&event - schedule_.events.data()));
                case EventKind::phase:
                case EventKind::loop:
                case EventKind::call:
                case EventKind::host_work:
                    return;
            }
        });
    }
}

void Interpreter::allocate(const Event& event) {
    if (event.bytes < 0) wrong(event.name, "a tensor of negative size is allocated");
    // Scratch that this shape does not need has no bytes.
    std::byte* address = event.bytes == 0 ? nullptr : device_.allocate(event.name, event.bytes, event.place);
    tensors_[event.id].push_back({address, event.bytes, event.place, event.name, {}});
    if (event.place != Place::device) return;
    live_bytes_ += event.bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void Interpreter::release(TensorId id) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) wrong("release", "a tensor is freed that is not alive");
    const Tensor& tensor = found->second.back();
    // Its memory goes to the next tensor that the compute stream touches.
    for (const Use& use : tensor.uses) {
        if (clocks_[number(Stream::compute)][use.stream] >= use.time) continue;
        wrong(use.launch,
              fmt::format("'{}' is freed before the {} stream is done with it", tensor.name, stream_name(use.stream)));
    }
    if (tensor.address != nullptr) device_.release(tensor.address, tensor.place);
    if (tensor.place == Place::device) live_bytes_ -= tensor.bytes;
    found->second.pop_back();
    if (found->second.empty()) tensors_.erase(found);
}

void Interpreter::launch(std::uint32_t index) {
    const auto begin = std::lower_bound(schedule_.descriptions.begin(), schedule_.descriptions.end(), index,
                                        [](const Description& d, std::uint32_t at) { return d.event < at; });
    const Event& event = schedule_.events[index];
    if (begin == schedule_.descriptions.end() || begin->event != index) {
        wrong(event.name, "the launch does not say what it computes");
    }
    for (auto it = begin; it != schedule_.descriptions.end() && it->event == index; ++it) {
        compute(event, it->computation);
    }
}

void Interpreter::compute(const Event& event, const Computation& computation) {
    Attention shape = event.kind == EventKind::attention ? event.attention : Attention{};
    shape.head_dim = head_dim_;
    join(clocks_[number(event.stream)], clocks_[host]);
    for (const Access& access : accesses(computation, shape, element_)) touch(event, access);
    ++clocks_[number(event.stream)][number(event.stream)];

    const Stream stream = event.stream;
    const auto spans = [&](const auto& moves) {
        std::vector<ByteMove> list;
        for (const Move& move : moves) {
            if (move.bytes > 0) list.push_back({resolve(move.from), resolve(move.to), move.bytes});
        }
        return list;
    };
    struct Visitor {
        Interpreter& self;
        const Event& event;
        Stream stream;
        const decltype(spans)& spans_of;

        std::byte* at(const View& view) { return self.resolve(view); }
        void operator()(const Product& p) {
            self.device_.product(stream, p, {at(p.a.view), at(p.b.view), at(p.c.view)});
        }
        void operator()(const Rotary& r) { self.device_.rotary(stream, r, at(r.data), self.head_dim_); }
        void operator()(const AttentionCall& c) {
            self.device_.attention(
                stream, event.attention,
                {at(c.query), at(c.key), at(c.value), at(c.output), at(c.exponent), at(c.output_gradient),
                 at(c.query_gradient), at(c.key_gradient), at(c.value_gradient), at(c.accumulator), at(c.delta)});
        }
        void operator()(const Exchange& e) {
            self.device_.exchange(stream, {at(e.move.from), at(e.move.to), e.move.bytes});
        }
        void operator()(const PassOn& p) { self.device_.pass_on(stream, spans_of(p.moves)); }
        void operator()(const Transfer& t) { self.device_.transfer(stream, spans_of(t.moves)); }
        void operator()(const Convert& c) { self.device_.convert(stream, c, at(c.from), at(c.to)); }
        void operator()(const AddTo& a) { self.device_.add(stream, a, at(a.sum), at(a.term)); }
        void operator()(const Merge& m) {
            self.device_.merge(stream, m, {at(m.sum), at(m.exponent), at(m.block), at(m.block_exponent)},
                               self.head_dim_);
        }
        void operator()(const SliceExponent& s) { self.device_.slice(stream, s, at(s.from), at(s.to)); }
    };
    std::visit(Visitor{*this, event, stream, spans}, computation);
}

void Interpreter::touch(const Event& event, const Access& access) {
    Tensor& touched = tensor(access.view.tensor, event.name);
    const std::int64_t begin = access.view.offset;
    const std::int64_t end = begin + access.bytes;
    if (begin < 0 || end > touched.bytes) {
        wrong(event.name,
              fmt::format("bytes {} to {} of '{}' are used, which has {}", begin, end, touched.name, touched.bytes));
    }
    const std::size_t stream = number(event.stream);
    const Clock& clock = clocks_[stream];
    std::erase_if(touched.uses, [&](const Use& use) {
        if (use.end <= begin || end <= use.begin || !(use.writes || access.writes)) return false;
        if (use.stream != stream && clock[use.stream] < use.time) {
            wrong(event.name,
                  fmt::format("'{}' is used on the {} stream, which does not wait for '{}' on the {} stream",
                              touched.name, stream_name(stream), use.launch, stream_name(use.stream)));
        }
        return access.writes && begin <= use.begin && use.end <= end;  // hidden behind this one from now on
    });
    touched.uses.push_back({begin, end, stream, clock[stream] + 1, access.writes, event.name});
}

Interpreter::Tensor& Interpreter::tensor(TensorId id, const char* launch) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) wrong(launch, "a tensor is used that is not alive");
    return found->second.back();
}

std::byte* Interpreter::resolve(const View& view) const {
    return view.empty() ? nullptr : tensors_.at(view.tensor).back().address + view.offset;
}

std::byte* Interpreter::address(TensorId id) const {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) throw Error("a tensor is asked for that is not alive", "calibrate check");
    return found->second.back().address;
}

std::int64_t Interpreter::bytes(TensorId id) const { return tensors_.at(id).back().bytes; }

}  // namespace headroom
