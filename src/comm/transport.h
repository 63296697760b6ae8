// How the ranks of a group reach each other's memory.
//
// Every rank has one arena, all of one layout: what lies at an offset in one lies at the same
// offset in all. That a rank can form an address for (rank, offset), and that loads, stores and
// system-scope atomics through it work, is all that communicators rely on. They exchange no
// pointers and assume no other shared memory, so that ranks may as well be processes whose arenas
// are mapped into each other.
//
// Addresses are known when the group starts and do not change: what a captured graph has recorded
// needs no registration.
#pragma once

#include <cstdint>

namespace segue::comm {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Of each arena. They start as zeros.
  virtual int64_t arena_bytes() const = 0;
  // Where this rank sees byte `offset` of a rank's arena. Precondition: 0 <= offset <
  // arena_bytes().
  virtual void* At(int rank, int64_t offset) const = 0;
};

}  // namespace segue::comm
