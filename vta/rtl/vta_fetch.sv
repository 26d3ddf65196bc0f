// Reads the stream in bursts and gives each instruction, in order, to the queue of its module.
module vta_fetch (
    input logic clk,
    input logic reset,
    input logic start,
    input vta_rtl::beat_address_t stream,
    input logic [31:0] length,
    output logic request,
    output vta_rtl::request_t asked,
    input logic granted,
    input logic beat,
    input vta_rtl::beat_t data,
    // The queues of the modules.
    input logic load_full,
    input logic compute_full,
    input logic store_full,
    output logic to_load,
    output logic to_compute,
    output logic to_store,
    output logic [127:0] instruction,
    output logic illegal,
    output logic empty  // every instruction is with its module
);
  localparam int unsigned BEATS = 16 / vta_rtl::BEAT_BYTES;  // of an instruction
  localparam int unsigned PART_BITS = $clog2(BEATS);
  localparam int unsigned COUNT_BITS = $clog2(vta_rtl::FETCH_QUEUE + 1);
  typedef logic [COUNT_BITS-1:0] count_t;

  // --- requests -------------------------------------------------------------------------------------
  logic [31:0] left;
  vta_rtl::beat_address_t address;
  count_t taken, burst;  // places of the queue that are taken, by those on their way too
  assign burst = left < 32'(vta_rtl::FETCH_BURST) ? COUNT_BITS'(left) : COUNT_BITS'(vta_rtl::FETCH_BURST);
  assign request = left != 0 && taken <= COUNT_BITS'(vta_rtl::FETCH_QUEUE) - burst;
  assign asked.address = address;
  assign asked.beats = vta_rtl::BEATS_BITS'(burst) << PART_BITS;

  logic dispatched;
  always_ff @(posedge clk) begin
    if (reset) begin
      left  <= '0;
      taken <= '0;
    end else if (start) begin
      left <= length;
      taken <= '0;
      address <= stream;
    end else begin
      if (granted) begin
        left <= left - 32'(burst);
        address <= address + vta_rtl::BEAT_ADDRESS_BITS'(asked.beats);
      end
      taken <= taken + (granted ? burst : '0) - COUNT_BITS'(dispatched);
    end
  end

  // --- instructions from beats ----------------------------------------------------------------------
  logic [PART_BITS-1:0] part;
  logic [127-vta_rtl::BEAT_BITS:0] parts;  // the beats before the last
  always_ff @(posedge clk) begin
    if (reset || start) part <= '0;
    else if (beat) part <= part + 1'b1;
    if (beat) parts <= (128 - vta_rtl::BEAT_BITS)'({data, parts} >> vta_rtl::BEAT_BITS);
  end

  logic valid, full;
  logic word_comes;
  assign word_comes = beat && part == PART_BITS'(BEATS - 1);
  vta_fifo #(
      .WIDTH(128),
      .DEPTH(vta_rtl::FETCH_QUEUE)
  ) words (
      .clk,
      .reset(reset || start),
      .push (word_comes && !full),
      .word ({data, parts}),
      .full,
      .pop  (dispatched),
      .valid,
      .head (instruction)
  );

  // --- dispatch -------------------------------------------------------------------------------------
  logic of_load, of_compute, of_store, means_nothing;
  vta_decode decode (
      .instruction,
      .to_load(of_load),
      .to_compute(of_compute),
      .to_store(of_store),
      .illegal(means_nothing)
  );
  assign illegal = valid && means_nothing;
  assign to_load = valid && !means_nothing && of_load && !load_full;
  assign to_compute = valid && !means_nothing && of_compute && !compute_full;
  assign to_store = valid && !means_nothing && of_store && !store_full;
  assign dispatched = to_load || to_compute || to_store;
  assign empty = left == 0 && taken == 0;
endmodule
