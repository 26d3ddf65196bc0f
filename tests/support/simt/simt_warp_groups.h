// Products of four warps (wgmma) for the emulator, part of the emulated program: factors by their
// descriptors, as the PTX ISA lays them out in shared memory. A product lands as late as a device
// may do it: when the thread waits for its group. Until then its sums are neither the old nor the
// new ones. Faults:
//   simt.product.unfenced     no wgmma.fence since the thread had its sums
//   simt.product.descriptor   another layout than the 128-byte swizzle, or nothing is there
SIMT_PLAIN unsigned simt_shared_address(const void* p) { return simt->shared_address(simt, p); }
SIMT_PLAIN void simt_order_shared() { simt->order_writes(simt); }
#define TW_SHARED_ADDRESS(p) simt_shared_address(p)
#define TW_ORDER_SHARED() simt_order_shared()
#define TW_LANDED(sum)

// What a thread has under way.
struct SimtSums {
  float* sums;
  unsigned group, count;
  float values[128];
};
struct SimtProducts {
  unsigned run, groups, count;
  bool fenced;
  SimtSums sums[8];
};
static SimtProducts simt_products[1024];
SIMT_PLAIN SimtProducts& simt_own_products() {
  SimtProducts& own = simt_products[simt_number()];
  if (own.run != simt->run) own.run = simt->run, own.groups = own.count = 0, own.fenced = false;
  return own;
}

// The element of row or column `own` and of `term` that a descriptor names. `turned`: rows in
// memory are terms, 64 of the others in each.
SIMT_PLAIN const unsigned short* simt_factor(unsigned long descriptor, int own, int term,
                                             bool turned) {
  const unsigned start = (descriptor & 0x3FFF) << 4;
  const unsigned leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF)
                                                                      << 4;
  const int row = turned ? term : own, column = turned ? own : term;
  unsigned at = start + row / 8 * stride + row % 8 * 128 + column % 64 * 2 + column / 64 * leading;
  at ^= at >> 3 & 0x70;
  const void* element = simt->shared_at(simt, at);
  if (descriptor >> 62 != 1 || element == nullptr) {
    simt->fail(simt, "simt.product.descriptor",
               "expected a factor in shared memory, in the 128-byte swizzle, found another place");
  }
  return (const unsigned short*)element;
}

// Each thread of the four warps reads some of a factor, for all of them.
SIMT_PLAIN void simt_read_factor(unsigned long descriptor, int count, bool turned,
                                 unsigned long site) {
  const int runs = count * 16 / 8;
  for (int run = 127 - (int)(simt_number() % 128); run < runs; run += 128) {
    const int along = turned ? count / 8 : 2, row = run / along, column = run % along * 8;
    const void* first =
        simt_factor(descriptor, turned ? column : row, turned ? row : column, turned);
    simt->access(simt, first, 16, 16, SIMT_UNIT_READ, (const void*)site);
  }
}

// The factors of the last product: its first thread reads them for all.
struct SimtFactorValues {
  float a[64][16], b[256][16];
};
static SimtFactorValues simt_values;
SIMT_PLAIN void simt_read_values(float (*to)[16], unsigned long descriptor, int count, bool turned,
                                 char type) {
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < 16; ++k) to[i][k] = simt_term(*simt_factor(descriptor, i, k, turned), type);
  }
}

// A thread's sums under way; a new entry where there are none.
SIMT_PLAIN SimtSums& simt_under_way(SimtProducts& own, float* d, unsigned count) {
  unsigned at = 0;
  while (at < own.count && own.sums[at].sums != d) ++at;
  if (at == 8) simt->fail(simt, "simt.product.many", "expected 8 products under way at most");
  SimtSums& sums = own.sums[at];
  if (at == own.count) {
    ++own.count;
    sums.sums = d, sums.count = count;
    __builtin_memcpy(sums.values, d, count * 4);
  }
  sums.group = own.groups;
  return sums;
}

// A device adds the terms up in an order of its own. Here the sum is exact, and rounded once.
template <int columns>
SIMT_PLAIN void simt_warp_group_mma(char type, float (&d)[columns / 2], unsigned long a,
                                    unsigned long b, bool a_turned, bool b_turned,
                                    unsigned long site) {
  simt->meet(simt, site);
  SimtProducts& own = simt_own_products();
  if (!own.fenced) {
    simt->fail(simt, "simt.product.unfenced",
               "expected wgmma.fence between the thread's own accesses of sums and a product");
  }
  simt_read_factor(a, 64, a_turned, site);
  simt_read_factor(b, columns, b_turned, site);
  const int thread = (int)(simt_number() % 128);
  if (thread == 0) {
    simt_read_values(simt_values.a, a, 64, a_turned, type);
    simt_read_values(simt_values.b, b, columns, b_turned, type);
  }
  SimtSums& sums = simt_under_way(own, d, columns / 2);
  for (int e = 0; e < columns / 2; ++e) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + e / 2 % 2 * 8;
    const int column = e / 4 * 8 + thread % 4 * 2 + e % 2;
    double sum = sums.values[e];
    for (int k = 0; k < 16; ++k) sum += (double)simt_values.a[row][k] * simt_values.b[column][k];
    sums.values[e] = (float)sum;
  }
  __builtin_memset(d, 0x7F, sizeof d);
}
#define TW_WARP_GROUP_64(type, d, a, b, a_turned, b_turned) \
  simt_warp_group_mma<64>(type[0], d, a, b, a_turned, b_turned, __LINE__ * 8 + k)
#define TW_WARP_GROUP_128(type, d, a, b, a_turned, b_turned) \
  simt_warp_group_mma<128>(type[0], d, a, b, a_turned, b_turned, __LINE__ * 8 + k)
#define TW_WARP_GROUP_256(type, d, a, b, a_turned, b_turned) \
  simt_warp_group_mma<256>(type[0], d, a, b, a_turned, b_turned, __LINE__ * 8 + k)

SIMT_PLAIN void simt_products_begin() { simt_own_products().fenced = true; }
// Commits what is under way, and waits until all but `groups` of the last groups have landed.
SIMT_PLAIN void simt_products_end(unsigned groups) {
  SimtProducts& own = simt_own_products();
  ++own.groups;
  own.fenced = false;
  unsigned left = 0;
  for (unsigned i = 0; i < own.count; ++i) {
    const SimtSums& sums = own.sums[i];
    if (sums.group + groups >= own.groups) {
      if (left != i) own.sums[left] = sums;
      ++left;
      continue;
    }
    __builtin_memcpy(sums.sums, sums.values, sums.count * 4);
  }
  own.count = left;
}
#define TW_PRODUCTS_BEGIN() simt_products_begin()
#define TW_PRODUCTS_END() simt_products_end(0)
