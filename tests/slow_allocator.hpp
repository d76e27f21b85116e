// SPDX-License-Identifier: Apache-2.0
// The reference that the fast model of the caching allocator is compared with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/caching_allocator.hpp"

namespace headroom {

/// The rules of CachingAllocator without any bookkeeping: memory is handles that are mapped or not (a plain segment is
/// one handle) and intervals that are live; everything else is found by walking over all of it.
class SlowAllocator {
 public:
    explicit SlowAllocator(const CachingAllocator::Options& options) : options_(options) {}

    bool allocate(int name, Stream stream, std::int64_t bytes) {
        const std::int64_t size = round_up(bytes, 512);
        const int pool = 2 * static_cast<int>(stream) + (size > mebi);
        if (!reuse(name, pool, size) && !grow(name, pool, size)) {
            empty_cache();
            if (!grow(name, pool, size)) return false;
        }
        peak_allocated = std::max(peak_allocated, allocated());
        peak_held = std::max(peak_held, allocated() + unreturnable());
        return true;
    }
    void release(int name) { live_.erase(name); }
    void empty_cache() {
        for (std::size_t s = 0; s < segments_.size(); ++s)
            for (std::size_t h = 0; h < segments_[s].mapped.size(); ++h)
                if (live_bytes(s, h) == 0) segments_[s].mapped[h] = false;
    }

    std::int64_t allocated() const {
        std::int64_t sum = 0;
        for (const auto& [name, live] : live_) sum += live.end - live.begin;
        return sum;
    }
    std::int64_t reserved() const {
        std::int64_t sum = 0;
        for (const Segment& s : segments_) sum += s.handle * std::count(s.mapped.begin(), s.mapped.end(), true);
        return sum;
    }
    std::int64_t unreturnable() const {
        std::int64_t sum = 0;
        for (std::size_t s = 0; s < segments_.size(); ++s)
            for (std::size_t h = 0; h < segments_[s].mapped.size(); ++h)
                if (const std::int64_t bytes = live_bytes(s, h); bytes > 0) sum += segments_[s].handle - bytes;
        return sum;
    }
    std::int64_t peak_allocated = 0, peak_reserved = 0, peak_held = 0;

 private:
    struct Segment {
        int pool;
        std::int64_t handle;  ///< bytes
        std::vector<bool> mapped;
    };
    struct Live {
        std::size_t segment;
        std::int64_t begin, end;
    };
    enum class Kind { live, free, unmapped };
    struct Run {
        Kind kind;
        std::int64_t begin, end;
        std::int64_t size() const { return end - begin; }
    };
    struct Candidate {
        std::int64_t size;
        std::size_t segment;
        std::int64_t begin, size_if_grown;
    };

    std::int64_t live_bytes(std::size_t segment, std::size_t handle) const {
        const std::int64_t begin = static_cast<std::int64_t>(handle) * segments_[segment].handle;
        std::int64_t sum = 0;
        for (const auto& [name, live] : live_)
            if (live.segment == segment)
                sum += std::max<std::int64_t>(
                    0, std::min(live.end, begin + segments_[segment].handle) - std::max(live.begin, begin));
        return sum;
    }

    /// The segment from its first byte to its last, an expandable one with the endless unmapped space behind it.
    std::vector<Run> runs(std::size_t segment) const {
        std::map<std::int64_t, std::int64_t> live;
        for (const auto& [name, l] : live_)
            if (l.segment == segment) live[l.begin] = l.end;
        const Segment& s = segments_[segment];
        std::vector<Run> result;
        const auto add = [&](Kind kind, std::int64_t begin, std::int64_t end) {
            if (begin == end) return;
            if (kind != Kind::live && !result.empty() && result.back().kind == kind) {
                result.back().end = end;
            } else {
                result.push_back({kind, begin, end});
            }
        };
        const std::int64_t last = static_cast<std::int64_t>(s.mapped.size()) * s.handle;
        for (std::int64_t at = 0; at < last;) {
            if (const auto here = live.find(at); here != live.end()) {
                add(Kind::live, at, here->second);
                at = here->second;
                continue;
            }
            const auto next_live = live.upper_bound(at);
            const std::int64_t border = (at / s.handle + 1) * s.handle;
            const std::int64_t end = next_live == live.end() ? border : std::min(border, next_live->first);
            add(s.mapped[static_cast<std::size_t>(at / s.handle)] ? Kind::free : Kind::unmapped, at, end);
            at = end;
        }
        if (options_.expandable_segments) add(Kind::unmapped, last, last + 1'000'000 * gibi);
        return result;
    }

    bool reuse(int name, int pool, std::int64_t size) {
        std::vector<Candidate> fitting;
        for (std::size_t s = 0; s < segments_.size(); ++s) {
            if (segments_[s].pool != pool) continue;
            const std::vector<Run> all = runs(s);
            for (std::size_t r = 0; r < all.size(); ++r) {
                if (all[r].kind != Kind::free || all[r].size() < size) continue;
                const bool grows = r + 1 < all.size() && all[r + 1].kind == Kind::unmapped;
                fitting.push_back({all[r].size(), s, all[r].begin, all[r].size() + (grows ? all[r + 1].size() : 0)});
            }
        }
        if (fitting.empty()) return false;
        std::sort(fitting.begin(), fitting.end(), [](const Candidate& a, const Candidate& b) {
            return std::tie(a.size, a.segment, a.begin) < std::tie(b.size, b.segment, b.begin);
        });
        std::size_t best = 0;
        while (best + 1 < fitting.size() && fitting[best + 1].size_if_grown < fitting[best].size_if_grown) ++best;
        take(name, fitting[best].segment, fitting[best].begin, size, fitting[best].size);
        return true;
    }

    void take(int name, std::size_t segment, std::int64_t begin, std::int64_t size, std::int64_t available) {
        const bool small = segments_[segment].pool % 2 == 0;
        const bool split = small || options_.expandable_segments || available - size > mebi;
        live_[name] = {segment, begin, begin + (split ? size : available)};
    }

    bool room_for(std::int64_t bytes) const {
        return options_.capacity.value == 0 || reserved() + bytes <= options_.capacity.value;
    }

    bool grow(int name, int pool, std::int64_t size) {
        const bool small = pool % 2 == 0;
        if (!options_.expandable_segments) {
            const std::int64_t bytes = small ? 2 * mebi : (size < 10 * mebi ? 20 * mebi : round_up(size, 2 * mebi));
            if (!room_for(bytes)) return false;
            segments_.push_back({pool, bytes, {true}});
            peak_reserved = std::max(peak_reserved, reserved());
            take(name, segments_.size() - 1, 0, size, bytes);
            return true;
        }
        std::size_t s = 0;
        while (s < segments_.size() && segments_[s].pool != pool) ++s;
        if (s == segments_.size()) segments_.push_back({pool, small ? 2 * mebi : 20 * mebi, {}});
        const std::vector<Run> all = runs(s);
        for (std::size_t r = 0; r < all.size(); ++r) {
            if (all[r].kind != Kind::unmapped) continue;
            const std::size_t first = r > 0 && all[r - 1].kind == Kind::free ? r - 1 : r;
            std::size_t last = first;
            while (last + 1 < all.size() && all[last + 1].kind != Kind::live) ++last;
            const std::int64_t begin = all[first].begin, end = begin + size;
            if (all[last].end < end) continue;
            for (std::size_t i = first; i <= last && all[i].begin < end; ++i)
                if (all[i].kind == Kind::unmapped && !map(s, all[i].begin, std::min(all[i].end, end))) return false;
            take(name, s, begin, size, size);
            return true;
        }
        return false;
    }

    bool map(std::size_t segment, std::int64_t begin, std::int64_t end) {
        Segment& s = segments_[segment];
        const auto first = static_cast<std::size_t>(begin / s.handle),
                   last = static_cast<std::size_t>(divide_round_up(end, s.handle));
        if (!room_for(static_cast<std::int64_t>(last - first) * s.handle)) return false;
        s.mapped.resize(std::max(s.mapped.size(), last));
        for (std::size_t h = first; h < last; ++h) s.mapped[h] = true;
        peak_reserved = std::max(peak_reserved, reserved());
        return true;
    }

    CachingAllocator::Options options_;
    std::vector<Segment> segments_;
    std::map<int, Live> live_;
};

}  // namespace headroom
