class Liqoctl < Formula
  desc "Installs Liqo and joins Kubernetes clusters as peers"
  homepage "{{ .URL }}"
  version "{{ .Number }}"
  license "Apache-2.0"
{{ range .Archives }}{{ if ne .OS "windows" }}
  if OS.{{ if eq .OS "darwin" }}mac{{ else }}linux{{ end }}? && Hardware::CPU.{{ if eq .Arch "arm64" }}arm{{ else }}intel{{ end }}?
    url "{{ .URL }}"
    sha256 "{{ .Sum }}"
  end
{{ end }}{{ end }}
  def install
    bin.install "liqoctl"
    bash_completion.install "completions/liqoctl.bash" => "liqoctl"
    zsh_completion.install "completions/_liqoctl"
    fish_completion.install "completions/liqoctl.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/liqoctl version --client")
  end
end
