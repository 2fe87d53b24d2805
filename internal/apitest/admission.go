// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// settleAdmission adds a policy and two webhooks that refuse a ConfigMap each, and waits until all
// act. The API server receives changes of a kind in order, so then it has received those before.
// What is added ends with the next restore. It may act a little longer, on ConfigMaps that nobody
// else makes.
func settleAdmission(ctx context.Context, c *kubernetes.Clientset, name string) error {
	policy, validating, mutating := name+"-policy", name+"-validating", name+"-mutating"
	admission := c.AdmissionregistrationV1()
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
	only := func(name string) []admissionv1.MatchCondition {
		return []admissionv1.MatchCondition{{Name: "name", Expression: fmt.Sprintf("object.metadata.name == '%s'", name)}}
	}
	nowhere := admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	none, fail, versions := admissionv1.SideEffectClassNone, admissionv1.Fail, []string{"v1"}
	if _, err := admission.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
			MatchConditions:  only(policy), FailurePolicy: &fail, Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := admission.ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: validating},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: validating + ".example.com", ClientConfig: nowhere, Rules: []admissionv1.RuleWithOperations{rule},
			MatchConditions: only(validating), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: versions,
		}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := admission.MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: mutating},
		Webhooks: []admissionv1.MutatingWebhook{{
			Name: mutating + ".example.com", ClientConfig: nowhere, Rules: []admissionv1.RuleWithOperations{rule},
			MatchConditions: only(mutating), FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: versions,
		}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, refused := range []string{policy, validating, mutating} {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: refused}}
		var err error
		if wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err = c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), refused), nil
		}) != nil {
			return fmt.Errorf("wait until %s acts, last answer: %v", refused, err)
		}
	}
	return nil
}
