// The sizes of the micro-architecture. They are those of CycleTiming (vta/isa/timing.h).
package vta_rtl;
  localparam int unsigned BEAT_BYTES = 8;
  localparam int unsigned BEAT_BITS = 8 * BEAT_BYTES;
  localparam int unsigned ADDRESS_BITS = 48;  // of a byte in DRAM
  localparam int unsigned BEAT_ADDRESS_BITS = ADDRESS_BITS - $clog2(BEAT_BYTES);
  localparam int unsigned OUTSTANDING = 16;   // read requests on their way
  localparam int unsigned BURST_BEATS = 256;  // of one read request at most
  localparam int unsigned BEATS_BITS = $clog2(BURST_BEATS) + 1;
  localparam int unsigned FETCH_BURST = 16;   // instructions that one read fetches
  localparam int unsigned FETCH_QUEUE = 64;
  localparam int unsigned MODULE_QUEUE = 512;
  localparam int unsigned TOKEN_DEPTH = 255;

  localparam int unsigned INSTRUCTION_BITS = 128;

  typedef logic [BEAT_BITS-1:0] beat_t;
  typedef logic [BEAT_ADDRESS_BITS-1:0] beat_address_t;
  typedef logic [BEATS_BITS-1:0] beats_t;

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
