// The sizes of the micro-architecture. They are those of CycleTiming (vta/sim/cycle_model.h).
package vta_rtl;
  localparam int unsigned BEAT_BYTES = 8;
  localparam int unsigned BEAT_BITS = 8 * BEAT_BYTES;
  localparam int unsigned ADDRESS_BITS = 48;  // of a byte in DRAM
  localparam int unsigned BEAT_ADDRESS_BITS = ADDRESS_BITS - $clog2(BEAT_BYTES);
  localparam int unsigned OUTSTANDING = 16;   // read requests on their way
  localparam int unsigned BURST_BEATS = 256;  // of one read request at most
  localparam int unsigned FETCH_BURST = 16;   // instructions that one read fetches
  localparam int unsigned FETCH_QUEUE = 64;
  localparam int unsigned MODULE_QUEUE = 512;
  localparam int unsigned TOKEN_DEPTH = 255;

  localparam int unsigned INSTRUCTION_BITS = 128;

  // Places of elements.
  localparam int unsigned UOP_INDEX_BITS = $clog2(vta_isa::UOP_ELEMENTS);
  localparam int unsigned INP_INDEX_BITS = $clog2(vta_isa::INP_ELEMENTS);
  localparam int unsigned WGT_INDEX_BITS = $clog2(vta_isa::WGT_ELEMENTS);
  localparam int unsigned ACC_INDEX_BITS = $clog2(vta_isa::ACC_ELEMENTS);  // of out, too
  localparam int unsigned SRC_INDEX_BITS =
      INP_INDEX_BITS > ACC_INDEX_BITS ? INP_INDEX_BITS : ACC_INDEX_BITS;
  // Banks of an element, each a beat; and micro-ops in a beat.
  localparam int unsigned INP_BANKS = vta_isa::INP_BYTES / BEAT_BYTES;
  localparam int unsigned WGT_BANKS = vta_isa::WGT_BYTES / BEAT_BYTES;
  localparam int unsigned ACC_BANKS = vta_isa::ACC_BYTES / BEAT_BYTES;
  localparam int unsigned OUT_BANKS = vta_isa::OUT_BYTES / BEAT_BYTES;
  localparam int unsigned LANES = BEAT_BYTES / vta_isa::UOP_BYTES;
  localparam int unsigned LANE_BITS = $clog2(LANES);

  localparam int unsigned SUM_BITS = 16 + $clog2(vta_isa::BLOCK);  // of a sum of products

  typedef logic [BEAT_BITS-1:0] beat_t;
  typedef logic [BEAT_ADDRESS_BITS-1:0] beat_address_t;
  typedef logic [$clog2(BURST_BEATS):0] beats_t;

  // A read request.
  typedef struct packed {
    beat_address_t address;
    beats_t beats;
  } request_t;

  // The flags of an instruction, as they lie in it.
  typedef struct packed {
    logic push_next;
    logic push_prev;
    logic pop_next;
    logic pop_prev;
  } flags_t;

endpackage
