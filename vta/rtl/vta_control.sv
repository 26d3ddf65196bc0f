// The control registers, which MANUAL.md of vta/isa lists; and when a stream starts and ends.
module vta_control #(
    parameter int unsigned CLOCK_KHZ
) (
    input logic clk,
    input logic reset,
    // Registers of 32 bits. What is read comes in the same cycle.
    input logic write,
    input logic [7:0] address,
    input logic [31:0] written,
    output logic [31:0] value,
    output logic start,  // the cycle before the first of a stream
    output logic stop,   // everything of the stream is forgotten
    output vta_rtl::beat_address_t stream,
    output logic [31:0] length,
    // What the modules do.
    input logic finished,
    input logic illegal,
    input logic work_left,   // in the cycle of the finish
    input logic left_after,  // in the cycle after it: tokens, or instructions behind it
    input logic dram_quiet,
    input logic read_beat,
    input logic write_beat,
    input logic load_busy,
    input logic compute_busy,
    input logic store_busy
);
  logic [63:0] cycles;
  // verilator lint_off UNUSEDSIGNAL
  logic [63:0] address_of_stream;  // fewer bits reach DRAM
  // verilator lint_on UNUSEDSIGNAL
  logic running, finishing, done, was_illegal, unfinished, busy;
  logic [31:0] read_beats, write_beats, load_cycles, compute_cycles, store_cycles;
  logic [31:0] status;
  logic asks;

  assign asks = write && address == 8'(vta_isa::REGISTER_CONTROL);
  assign busy = running || finishing || !dram_quiet;
  assign start = asks && written == vta_isa::CONTROL_START && !busy;
  assign stop = asks && written == vta_isa::CONTROL_STOP;
  assign stream = address_of_stream[vta_rtl::ADDRESS_BITS-1-:vta_rtl::BEAT_ADDRESS_BITS];

  always_comb begin
    status = '0;
    status[vta_isa::STATUS_BUSY] = busy;
    status[vta_isa::STATUS_DONE] = done;
    status[vta_isa::STATUS_ILLEGAL] = was_illegal;
    status[vta_isa::STATUS_UNFINISHED] = unfinished;
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      running <= 1'b0;
      finishing <= 1'b0;
      done <= 1'b0;
      was_illegal <= 1'b0;
      unfinished <= 1'b0;
    end else if (start) begin
      running <= 1'b1;
      done <= 1'b0;
      was_illegal <= 1'b0;
      unfinished <= 1'b0;
    end else if (stop) begin
      running   <= 1'b0;
      finishing <= 1'b0;
    end else begin
      if (running && illegal) was_illegal <= 1'b1;
      if (running && finished) begin
        running <= 1'b0;
        finishing <= 1'b1;
        unfinished <= work_left;
      end
      if (finishing) begin
        finishing <= 1'b0;
        done <= 1'b1;
        if (left_after) unfinished <= 1'b1;
      end
    end
  end

  always_ff @(posedge clk) begin
    if (reset || start) begin
      cycles <= '0;
      {read_beats, write_beats, load_cycles, compute_cycles, store_cycles} <= '0;
    end else if (running) begin
      cycles <= cycles + 1'b1;
      read_beats <= read_beats + 32'(read_beat);
      write_beats <= write_beats + 32'(write_beat);
      load_cycles <= load_cycles + 32'(load_busy);
      compute_cycles <= compute_cycles + 32'(compute_busy);
      store_cycles <= store_cycles + 32'(store_busy);
    end
  end

  always_ff @(posedge clk) begin
    if (reset) begin
      address_of_stream <= '0;
      length <= '0;
    end else if (write) begin
      case (address)
        8'(vta_isa::REGISTER_STREAM_LOW): address_of_stream[31:0] <= written;
        8'(vta_isa::REGISTER_STREAM_HIGH): address_of_stream[63:32] <= written;
        8'(vta_isa::REGISTER_STREAM_LENGTH): length <= written;
        default: ;
      endcase
    end
  end

  always_comb begin
    case (address)
      8'(vta_isa::REGISTER_STATUS): value = status;
      8'(vta_isa::REGISTER_STREAM_LOW): value = address_of_stream[31:0];
      8'(vta_isa::REGISTER_STREAM_HIGH): value = address_of_stream[63:32];
      8'(vta_isa::REGISTER_STREAM_LENGTH): value = length;
      8'(vta_isa::REGISTER_CYCLES_LOW): value = cycles[31:0];
      8'(vta_isa::REGISTER_CYCLES_HIGH): value = cycles[63:32];
      8'(vta_isa::REGISTER_READ_BEATS): value = read_beats;
      8'(vta_isa::REGISTER_WRITE_BEATS): value = write_beats;
      8'(vta_isa::REGISTER_LOAD_BUSY): value = load_cycles;
      8'(vta_isa::REGISTER_COMPUTE_BUSY): value = compute_cycles;
      8'(vta_isa::REGISTER_STORE_BUSY): value = store_cycles;
      8'(vta_isa::REGISTER_IDENTITY): value = vta_isa::IDENTITY;
      8'(vta_isa::REGISTER_CLOCK_KHZ): value = CLOCK_KHZ;
      default: value = '0;
    endcase
  end
endmodule
