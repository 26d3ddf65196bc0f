// Copies of boxes that a unit does (cp.async.bulk.tensor), for the emulator, part of the emulated
// program. The source is read when a copy starts; it lands as late as a device may do it: when a
// thread has waited for the phase of its word (mbarrier). Until then its place has neither the old
// values nor the new ones. What lands, units may read. Faults:
//   simt.bulk.word    a word that no thread has initialised, or two copies too many
//   simt.bulk.never   a wait that never ends: bytes are missing, or the arrival
#include "tests/support/simt/simt_tensor_map.h"

#define TW_TENSOR_MAP const SimtTensorMap*

struct SimtBox {
  unsigned address, rows;
  char* values;  // rows of 128 bytes
};
struct SimtArrival {
  unsigned run, phases, count;
  int missing;             // arrivals
  long expected, started;  // bytes
  SimtBox boxes[64];
};
static SimtArrival simt_arrivals[8];

SIMT_PLAIN void simt_arrival_init(unsigned long word) {
  SimtArrival& a = simt_arrivals[word];
  for (unsigned i = 0; i < a.count; ++i) __builtin_free(a.boxes[i].values);
  a.run = simt->run, a.phases = a.count = 0, a.missing = 1, a.expected = a.started = 0;
}
// The number of a word stands for it.
SIMT_PLAIN SimtArrival& simt_arrival(unsigned long word) {
  SimtArrival& a = simt_arrivals[word];
  if (a.run != simt->run)
    simt->fail(simt, "simt.bulk.word", "expected a word that a thread has initialised");
  return a;
}

// Sixteen bytes of a row, where the 128-byte swizzle has them.
SIMT_PLAIN char* simt_box_run(const SimtBox& box, unsigned row, unsigned run) {
  const unsigned at = box.address + row * 128 + run * 16;
  const void* place = simt->shared_at(simt, at ^ (at >> 3 & 0x70));
  if (place == nullptr) simt->fail(simt, "simt.out_of_bounds", "a box ends behind shared memory");
  return (char*)place;
}
// Lets all copies of a phase land that is complete; returns whether one was.
SIMT_PLAIN bool simt_land_boxes(SimtArrival& a, unsigned long site) {
  if (a.missing > 0 || a.expected != a.started) return false;
  for (unsigned i = 0; i < a.count; ++i) {
    const SimtBox& box = a.boxes[i];
    for (unsigned run = 0; run < box.rows * 8; ++run) {
      char* to = simt_box_run(box, run / 8, run % 8);
      simt->access(simt, to, 16, 16, SIMT_WRITE, (const void*)site);
      __builtin_memcpy(to, box.values + run * 16, 16);
    }
    __builtin_free(box.values);
  }
  if (a.count > 0) simt->order_writes(simt);
  ++a.phases, a.count = 0, a.missing = 1, a.expected = a.started = 0;
  return true;
}
SIMT_PLAIN void simt_expect(unsigned long word, long bytes) {
  simt_arrival(word).expected += bytes;
}
SIMT_PLAIN void simt_arrive(unsigned long word) { --simt_arrival(word).missing; }
SIMT_PLAIN bool simt_arrived(unsigned long word, unsigned phase, unsigned long site) {
  simt->meet(simt, site);
  SimtArrival& a = simt_arrival(word);
  if (a.phases % 2 == phase % 2) simt_land_boxes(a, site);
  if (a.phases % 2 == phase % 2)
    simt->fail(simt, "simt.bulk.never", "expected that all bytes of a phase come, some never do");
  return true;
}

SIMT_PLAIN void simt_copy_box(void* to, const SimtTensorMap* map, int column, int row,
                              unsigned long word, unsigned long site) {
  SimtArrival& a = simt_arrival(word);
  SimtBox box = {simt->shared_address(simt, to), map->box_rows, nullptr};
  if (box.address % 128 != 0)
    simt->fail(simt, "simt.misaligned", "expected a box at a multiple of 128 bytes");
  if (a.count == 64) simt->fail(simt, "simt.bulk.word", "expected 64 boxes under way at most");
  const unsigned wide = map->box_columns * map->bytes;
  box.values = (char*)__builtin_calloc(box.rows, 128);
  for (unsigned r = 0; r < box.rows; ++r) {
    const long at = (long)row + r, left = (long)map->columns - column;
    const bool inside = at >= 0 && at < (long)map->rows && column >= 0 && left > 0;
    if (inside) {  // what is outside are zeros
      const unsigned long bytes = left < (long)map->box_columns ? left * map->bytes : wide;
      const char* from = map->base + at * map->row_bytes + (long)column * map->bytes;
      simt->access(simt, from, bytes, 1, SIMT_READ, (const void*)site);
      __builtin_memcpy(box.values + r * 128, from, bytes);
    }
    for (unsigned run = 0; run < wide / 16; ++run) {
      char* place = simt_box_run(box, r, run);
      simt->access(simt, place, 16, 16, SIMT_WRITE, (const void*)site);
      __builtin_memset(place, 0x7F, 16);
    }
  }
  a.started += (long)box.rows * wide;
  a.boxes[a.count++] = box;
}

#define TW_ARRIVAL_INIT(word) simt_arrival_init((word) - tw_arrivals)
#define TW_ARRIVALS_READY()
#define TW_EXPECT(word, bytes) simt_expect((word) - tw_arrivals, bytes)
#define TW_ARRIVE(word) simt_arrive((word) - tw_arrivals)
#define TW_ARRIVED(word, phase, done) done = simt_arrived((word) - tw_arrivals, phase, __LINE__)
#define TW_COPY_BOX(to, map, column, row, word) \
  simt_copy_box(to, map, column, row, (word) - tw_arrivals, __LINE__)
