// Room for a prompt's rows in a recorded step.
#pragma once

#include <array>
#include <cstdint>

namespace segue::runtime {

// Rows of the slots, ascending. 64 is a short prompt and its template, 1024 the longest the
// pipeline takes; each is twice the last but for the first two, as products on text rows cost
// nearly the same up to 128.
inline constexpr std::array<int64_t, 5> kTextSlots = {64, 128, 256, 512, 1024};

// The smallest slot for so many rows; their own number where there are more than the largest has.
constexpr int64_t TextSlot(int64_t rows) {
  for (const int64_t slot : kTextSlots) {
    if (rows <= slot) return slot;
  }
  return rows;
}

}  // namespace segue::runtime
