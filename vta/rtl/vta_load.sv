// The module load: loads of inp and wgt, and these memories.
module vta_load (
    input logic clk,
    input logic reset,
    input logic push,
    input logic [127:0] instruction,
    output logic full,
    output logic idle,  // and no instruction waits
    output logic busy,  // an instruction runs
    // Tokens of compute.
    input logic next_available,
    input logic next_room,
    output logic take_next,
    output logic give_next,
    // DRAM.
    output logic request,
    output vta_rtl::request_t asked,
    input logic granted,
    input logic beat,
    input vta_rtl::beat_t data,
    // Operands of compute.
    input logic read,
    input logic [vta_isa::INP_INDEX_BITS-1:0] inp_index,
    input logic [vta_isa::WGT_INDEX_BITS-1:0] wgt_index,
    output logic [8*vta_isa::INP_BYTES-1:0] inp,
    output logic [8*vta_isa::WGT_BYTES-1:0] wgt
);
  localparam int unsigned INP_BANKS = vta_isa::INP_BYTES / vta_rtl::BEAT_BYTES;
  localparam int unsigned WGT_BANKS = vta_isa::WGT_BYTES / vta_rtl::BEAT_BYTES;
  localparam int unsigned LANE_BITS = $clog2(vta_rtl::BEAT_BYTES / vta_isa::UOP_BYTES);
  localparam int unsigned INDEX_BITS = vta_isa::INP_INDEX_BITS > vta_isa::WGT_INDEX_BITS
                                           ? vta_isa::INP_INDEX_BITS : vta_isa::WGT_INDEX_BITS;

  vta_isa::transfer_t head;
  logic valid, start, done_unused, stage_idle, last, empty, head_is_wgt, is_wgt;
  vta_fifo #(
      .WIDTH(128),
      .DEPTH(vta_rtl::MODULE_QUEUE)
  ) queue (
      .clk,
      .reset,
      .push,
      .word(instruction),
      .full,
      .pop (start),
      .valid,
      .head
  );
  assign empty = head.x_size == 0 ||
                 (head.y_size == 0 && head.y_pad_0 == 0 && head.y_pad_1 == 0);
  assign head_is_wgt = head.memory == vta_isa::MEMORY_WGT;
  assign idle = stage_idle && !valid;
  assign busy = start || !stage_idle;

  logic take_unused, give_unused;  // there is no module before
  vta_sequencer sequencer (
      .clk,
      .reset,
      .valid,
      .flags({head.push_next, head.push_prev, head.pop_next, head.pop_prev}),
      .only_decodes(empty),
      .prev_available(1'b0),
      .next_available,
      .prev_room(1'b0),
      .next_room,
      .take_prev(take_unused),
      .take_next,
      .give_prev(give_unused),
      .give_next,
      .last,
      .start,
      .done(done_unused),
      .idle(stage_idle)
  );

  logic [INDEX_BITS-1:0] element, zero_element;
  logic [$clog2(WGT_BANKS)-1:0] bank;
  logic zero;
  logic [LANE_BITS-1:0] first_unused;  // of micro-ops
  logic [LANE_BITS:0] count_unused;
  vta_transfer #(
      .INDEX_BITS(INDEX_BITS),
      .BANK_BITS ($clog2(WGT_BANKS))
  ) transfer (
      .clk,
      .reset,
      .start(start && !empty),
      .load(head),
      .small_elements(1'b0),
      .beat_shift(head_is_wgt ? 4'($clog2(WGT_BANKS)) : 4'($clog2(INP_BANKS))),
      .request,
      .asked,
      .granted,
      .beat,
      .last,
      .element,
      .bank,
      .first(first_unused),
      .count(count_unused),
      .zero,
      .zero_element
  );
  always_ff @(posedge clk) if (start) is_wgt <= head_is_wgt;

  logic [WGT_BANKS-1:0] banks;
  vta_rtl::beat_t written;
  logic [INDEX_BITS-1:0] index;
  assign banks = zero ? '1 : WGT_BANKS'(beat) << bank;
  assign written = zero ? '0 : data;
  assign index = zero ? zero_element : element;

  vta_memory #(
      .ELEMENTS(vta_isa::INP_ELEMENTS),
      .BANKS(INP_BANKS),
      .BANK_BITS(vta_rtl::BEAT_BITS),
      .WRITE_BITS(vta_rtl::BEAT_BITS)
  ) inp_memory (
      .clk,
      .write(is_wgt ? '0 : banks[INP_BANKS-1:0]),
      .write_index(index[vta_isa::INP_INDEX_BITS-1:0]),
      .write_data(written),
      .read,
      .read_index(inp_index),
      .read_data(inp)
  );
  vta_memory #(
      .ELEMENTS(vta_isa::WGT_ELEMENTS),
      .BANKS(WGT_BANKS),
      .BANK_BITS(vta_rtl::BEAT_BITS),
      .WRITE_BITS(vta_rtl::BEAT_BITS)
  ) wgt_memory (
      .clk,
      .write(is_wgt ? banks : '0),
      .write_index(index[vta_isa::WGT_INDEX_BITS-1:0]),
      .write_data(written),
      .read,
      .read_index(wgt_index),
      .read_data(wgt)
  );
endmodule
